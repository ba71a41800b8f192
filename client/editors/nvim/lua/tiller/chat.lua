--- The chat: a buffer with the blocks of a session, and a prompt below it. It knows windows and lines,
--- not what they mean.

local render = require('tiller.render')
local text = require('tiller.text')

local M = { by_buffer = {} }

local Chat = {}
Chat.__index = Chat

--- Streamed text is shown this often; each change of the buffer redraws the screen.
local FLUSH_MS = 30

--- From this many columns on, the chat stands at the right, else below.
local COLUMNS_WIDE = 120

local PROMPT_LINES = 2

local CHAT_OPTIONS = table.concat({
  'wrap linebreak nonumber norelativenumber nospell nolist conceallevel=0 foldmethod=expr foldlevel=1',
  [[fillchars=fold:\ ]],
  "foldminlines=0 foldexpr=v:lua.require'tiller.chat'.fold() foldtext=v:lua.require'tiller.chat'.foldtext()",
  "statusline=%{get(b:,'tiller_status','tiller')}",
}, ' ')

local PROMPT_OPTIONS = 'winfixheight nonumber norelativenumber foldmethod=manual '
  .. [[statusline=prompt:\ Enter\ sends,\ CTRL-S\ in\ insert\ mode,\ CTRL-C\ interrupts]]

local namespace = vim.api.nvim_create_namespace('tiller')

--- Create a buffer of ours, in place of one whose companion was wiped out.
local function scratch(name)
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buffer) == name then
      vim.api.nvim_buf_delete(buffer, { force = true })
    end
  end
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(buffer, name)
  vim.bo[buffer].bufhidden = 'hide'
  return buffer
end

--- A chat without a session; `show` gives it one.
function M.new()
  local chat = setmetatable({ owner = {}, total = 0 }, Chat)
  chat.buffer = scratch('tiller://chat')
  chat.prompt = scratch('tiller://prompt')
  vim.bo[chat.buffer].modifiable = false
  vim.bo[chat.buffer].filetype = 'tiller'
  vim.bo[chat.buffer].syntax = 'markdown'
  M.by_buffer[chat.buffer] = chat
  return chat
end

function Chat:is_valid()
  return vim.api.nvim_buf_is_valid(self.buffer) and vim.api.nvim_buf_is_valid(self.prompt)
end

--- Show the chat and go to its prompt.
function Chat:open()
  if vim.fn.bufwinid(self.buffer) == -1 then
    local is_wide = vim.o.columns >= COLUMNS_WIDE
    vim.cmd(is_wide and 'botright vsplit' or ('botright %dsplit'):format(math.floor(vim.o.lines * 3 / 4)))
    vim.api.nvim_win_set_buf(0, self.buffer)
    vim.cmd('setlocal ' .. CHAT_OPTIONS)
    vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(self.buffer), 0 })
  end
  if vim.fn.bufwinid(self.prompt) == -1 then
    vim.api.nvim_set_current_win(vim.fn.bufwinid(self.buffer))
    vim.cmd(('belowright %dsplit'):format(PROMPT_LINES))
    vim.api.nvim_win_set_buf(0, self.prompt)
    vim.cmd('setlocal ' .. PROMPT_OPTIONS)
  end
  vim.api.nvim_set_current_win(vim.fn.bufwinid(self.prompt))
end

--- The text of the prompt, which is empty then.
function Chat:take_prompt()
  local lines = vim.api.nvim_buf_get_lines(self.prompt, 0, -1, false)
  vim.api.nvim_buf_set_lines(self.prompt, 0, -1, false, {})
  return vim.trim(table.concat(lines, '\n'))
end

--- Put text that could not be sent back into the prompt, before what was written since.
function Chat:give_back(words)
  local is_empty = table.concat(vim.api.nvim_buf_get_lines(self.prompt, 0, -1, false)) == ''
  vim.api.nvim_buf_set_lines(self.prompt, 0, is_empty and -1 or 0, false, text.lines(words))
end

--- Show all blocks of a session, in place of what was shown.
function Chat:show(session)
  self.session = session
  session:take_dirty()
  local lines = {}
  for _, block in ipairs(session.blocks) do
    block.page = render.page(block)
    block.count = #block.page.lines
    vim.list_extend(lines, block.page.lines)
  end
  self:_place(1)
  self:_change(0, -1, lines)
  for _, block in ipairs(session.blocks) do
    self:_highlight(block)
  end
  self:_show_footer()
  self:_go_to_end(vim.fn.win_findbuf(self.buffer))
end

--- Show soon what has changed.
function Chat:update()
  if not self.is_waiting then
    self.is_waiting = true
    vim.defer_fn(function()
      self.is_waiting = false
      if self:is_valid() and self.session then
        self:flush()
      end
    end, FLUSH_MS)
  end
end

--- Show what has changed.
function Chat:flush()
  local ends = self:_windows_at_end()
  for _, block in ipairs(self.session:take_dirty()) do
    self:_show_block(block)
  end
  self:_show_footer()
  self:_go_to_end(ends)
end

--- The block at a line of the buffer, and the number of the line within it.
function Chat:block_at(line)
  local block = line <= self.total and self.owner[line] or nil
  return block, block and line - block.row
end

--- The place that a line leads to: its own, or that of its block.
function Chat:target_at(line)
  local block, at = self:block_at(line)
  while block and at > 0 do
    if block.page.targets[at] then
      return block.page.targets[at]
    end
    at = at - 1
  end
end

function M.fold()
  local chat = M.by_buffer[vim.api.nvim_get_current_buf()]
  if not chat then
    return '0' -- another buffer in a window of the chat
  end
  local block, at = chat:block_at(vim.v.lnum)
  return block and block.page.folds[at] or '0'
end

function M.foldtext()
  local hidden = vim.v.foldend - vim.v.foldstart
  return ('%s  … +%d'):format(vim.fn.getline(vim.v.foldstart), hidden)
end

function Chat:_windows_at_end()
  local last = vim.api.nvim_buf_line_count(self.buffer)
  return vim.tbl_filter(function(window)
    return vim.api.nvim_win_get_cursor(window)[1] == last
  end, vim.fn.win_findbuf(self.buffer))
end

--- A window that is not the current one does not scroll by itself.
function Chat:_go_to_end(windows)
  for _, window in ipairs(windows) do
    vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(self.buffer), 0 })
    vim.api.nvim_win_call(window, function() vim.cmd('normal! zb') end)
  end
end

--- Replace the lines of a block, from the first one that differs.
function Chat:_show_block(block)
  local old = block.page and block.page.lines or {}
  block.page = render.page(block)
  local new, same = block.page.lines, 0
  while same < #old and same < #new and old[same + 1] == new[same + 1] do
    same = same + 1
  end
  block.count = #new
  self:_place(self:_index(block))
  self:_change(block.row + same, block.row + #old, vim.list_slice(new, same + 1))
  self:_highlight(block)
end

--- Blocks that change are among the last ones.
function Chat:_index(block)
  for at = #self.session.blocks, 1, -1 do
    if self.session.blocks[at] == block then
      return at
    end
  end
end

--- Compute anew where blocks stand, from the one with this index on. Before the buffer changes, as
--- Neovim asks for folds during the change.
function Chat:_place(index)
  local blocks = self.session.blocks
  local before = blocks[index - 1]
  local row = before and before.row + before.count or 0
  for at = index, #blocks do
    local block = blocks[at]
    block.row = row
    if not block.page then
      break -- it comes with this flush
    end
    for line = row + 1, row + block.count do
      self.owner[line] = block
    end
    row = row + block.count
  end
  self.total = row
end

function Chat:_change(first, last, lines)
  vim.api.nvim_buf_clear_namespace(self.buffer, namespace, first, last)
  vim.bo[self.buffer].modifiable = true
  vim.api.nvim_buf_set_lines(self.buffer, first, last, false, lines)
  vim.bo[self.buffer].modifiable = false
end

function Chat:_highlight(block)
  vim.api.nvim_buf_clear_namespace(self.buffer, namespace, block.row, block.row + block.count)
  for at = 1, block.count do
    local group = block.page.groups[at]
    if group then
      local options = { end_col = #block.page.lines[at], hl_group = group }
      vim.api.nvim_buf_set_extmark(self.buffer, namespace, block.row + at - 1, 0, options)
    end
  end
end

--- The lines after the last block: what waits; and always an empty one, on which the cursor follows.
function Chat:_show_footer()
  local session, lines = self.session, {}
  for _, input in ipairs(session.queue) do
    local mark = input.delivery == 'steer' and '⇢ ' or '⧗ '
    table.insert(lines, mark .. text.one_line(input.text))
  end
  table.insert(lines, '')
  self:_change(self.total, -1, lines)
  local words = { 'tiller', session.title, session.status, session.status_cause }
  if session.background > 0 then
    table.insert(words, ('%d in the background'):format(session.background))
  end
  if #session.others > 0 then
    table.insert(words, 'also: ' .. table.concat(session.others, ', '))
  end
  table.insert(words, self.connection or '')
  local shown = vim.tbl_filter(function(word) return word ~= '' end, vim.tbl_map(text.one_line, words))
  vim.b[self.buffer].tiller_status = table.concat(shown, ' · ')
end

return M
