--- Makes the lines of a block: text, highlights, fold levels, and the places that a line leads to.
--- Pure. Everything that a model, a tool or a file says passes through `text` here.

local requests = require('tiller.requests')
local session = require('tiller.session')
local text = require('tiller.text')

local M = {}

local MARGIN = '    '

--- Lines of a command's output below a call; the fold has them all, up to this many.
local OUTPUT_LINES_MAX = 200

--- Arguments that describe a call, the best first, until it has a title.
local ARGUMENTS = { 'command', 'path', 'pattern', 'url', 'query', 'text', 'prompt', 'code', 'id' }

local DELIVERY = { steer = ' (steering)', queue = ' (queued)' }

--- What a block becomes: `lines`; by line number `groups` (highlight), `folds` and `targets`.
local Page = {}
Page.__index = Page

function Page:add(line, group, fold, target)
  local at = #self.lines + 1
  self.lines[at] = line
  self.groups[at], self.folds[at], self.targets[at] = group, fold, target
end

--- Lines of safe text, each behind a margin; the first may have another one.
function Page:add_all(shown, group, fold, first_margin, margin)
  for at, line in ipairs(text.lines(shown)) do
    self:add((at == 1 and first_margin or margin or '') .. line, group, fold)
  end
end

--- The lines of a block.
function M.page(block)
  local page = setmetatable({ lines = {}, groups = {}, folds = {}, targets = {} }, Page)
  M['_' .. block.kind](page, block)
  return page
end

M._request = requests.show

function M._note(page, block)
  local groups = { warning = 'TillerWarning', error = 'TillerError' }
  page:add_all(text.sanitized(block.text), groups[block.tone] or 'TillerDim', nil, '', '  ')
end

function M._plan(page, block)
  local marks = { pending = '☐ ', in_progress = '▶ ', completed = '☑ ' }
  for _, entry in ipairs(block.plan) do
    page:add((marks[entry.state] or '· ') .. text.one_line(entry.text), 'TillerDim')
  end
end

function M._turn(page, block)
  local ended = block.ended
  local usage = ended.usage or {}
  local words = { ended.outcome, text.seconds(ended.duration_s) }
  table.insert(words, ('%d tokens'):format((usage.input_tokens or 0) + (usage.output_tokens or 0)))
  if ended.cost then
    table.insert(words, ('$%.4f'):format(ended.cost))
  end
  if (ended.queued or 0) > 0 then
    table.insert(words, ('%d inputs wait; the next message starts them'):format(ended.queued))
  end
  page:add('── ' .. table.concat(words, ' · '), 'TillerDim')
  page:add('')
end

function M._item(page, block)
  local show = M['_' .. block.item.type]
  if show and not block.item.discarded and block.item.state ~= 'discarded' then
    show(page, block)
  end
end

function M._user_message(page, block)
  local item = block.item
  local words = text.sanitized(item.text)
  for _, path in ipairs(item.files or {}) do
    words = words .. ' @' .. text.one_line(path)
  end
  if #(item.images or {}) > 0 then
    words = ('%s (%d attached)'):format(words, #item.images)
  end
  page:add_all(words .. (DELIVERY[item.delivery] or ''), 'TillerUser', nil, '» ', '  ')
end

function M._assistant_message(page, block)
  local words = text.sanitized(session.channel(block, 'text')):gsub('\n+$', '')
  if block.item.state == 'interrupted' then
    words = words .. ' (interrupted)'
  end
  if words ~= '' then
    page:add_all(words)
  end
  for _, source in ipairs(block.item.citations or {}) do
    page:add(MARGIN .. '↗ ' .. text.one_line((source.title or '') .. ' ' .. (source.url or '')), 'TillerDim')
  end
end

function M._reasoning(page, block)
  local words = text.sanitized(session.channel(block, 'text')):gsub('\n+$', '')
  if words ~= '' then
    page:add_all(words, 'TillerDim', nil, '∴ ', '  ')
  end
end

function M._compaction(page, block)
  page:add('≡ history up to here was summarised', 'TillerDim', '>2')
  page:add_all(text.sanitized(block.item.summary), 'TillerDim', '2', MARGIN, MARGIN)
end

function M._notice(page, block)
  page:add('▪ ' .. text.one_line(block.item.text), 'TillerDim')
end

function M._patch(page, block)
  for _, path in ipairs(block.item.files or {}) do
    page:add('± ' .. text.one_line(path), 'TillerDim', nil, { path = path })
  end
end

--- A call: a line with its state, and in a fold its diff or its output. Open at first are only diffs, and
--- what failed.
function M._tool_call(page, block)
  local item = block.item
  local arguments = M.arguments(item.rewritten_arguments or session.channel(block, 'arguments'))
  local failed = item.state == 'error' or (item.exit_status or 0) ~= 0
  local group = failed and 'TillerError' or item.state == 'completed' and 'TillerDone' or 'TillerCall'
  local path = type(arguments.path) == 'string' and arguments.path
  local target = path and { path = path, line = tonumber(arguments.offset) or 1 } or nil
  local output = text.sanitized(session.channel(block, 'output'))
  local diff = item.diff or ''
  local has_body = diff ~= '' or output ~= ''
  local level = (failed or diff ~= '') and '1' or '2'
  page:add(M.call_line(item, arguments), group, has_body and '>' .. level or nil, target)
  if diff ~= '' then
    M.add_diff(page, diff, level)
    output = output:match('\n\n(.*)$') or '' -- the problems that the edit caused
  end
  local lines = output ~= '' and text.lines(output) or {}
  local first = math.max(1, #lines - OUTPUT_LINES_MAX + 1)
  if first > 1 then
    page:add(('%s… %d lines: tiller show --full'):format(MARGIN, first - 1), 'TillerDim', level)
  end
  for at = first, #lines do
    page:add(MARGIN .. lines[at], 'TillerDim', level)
  end
end

--- Name, subject and state of a call in one line.
function M.call_line(item, arguments)
  local title = item.title or ''
  for _, name in ipairs(ARGUMENTS) do
    if title == '' and type(arguments[name]) == 'string' then
      title = arguments[name]
    end
  end
  local state = item.state == 'completed' and 'ok' or item.error_kind or item.state
  if (item.exit_status or 0) ~= 0 then
    state = 'exit ' .. item.exit_status
  end
  local words = { '●', text.one_line(item.name), text.one_line(title), state }
  if item.duration_s then
    table.insert(words, text.seconds(item.duration_s))
  end
  if item.sub_agent then
    table.insert(words, ('(%s: %d steps)'):format(text.one_line(item.sub_agent.agent), item.sub_agent.steps or 0))
  end
  return table.concat(vim.tbl_filter(function(word) return word ~= '' end, words), ' ')
end

--- Arguments as a table; empty while they are incomplete, or if they are no object.
function M.arguments(encoded)
  local decoded, arguments = pcall(vim.json.decode, encoded)
  return decoded and type(arguments) == 'table' and arguments or {}
end

--- A diff whose lines lead to their places in the changed file.
function M.add_diff(page, diff, fold)
  for _, one in ipairs(M.diff_lines(diff)) do
    local group = ({ ['+'] = 'TillerAdded', ['-'] = 'TillerRemoved' })[one.text:sub(1, 1)] or 'TillerDim'
    page:add(MARGIN .. text.sanitized(one.text), group, fold, one.path and { path = one.path, line = one.line })
  end
end

--- The lines of a unified diff, each with the path and line of the new file that it is about.
function M.diff_lines(diff)
  local found, path, line, old_left, new_left = {}, nil, 1, 0, 0
  for _, one in ipairs(text.lines(diff)) do
    local mark = one:sub(1, 1)
    if old_left > 0 or new_left > 0 then
      table.insert(found, { text = one, path = path, line = math.max(line, 1) })
      if mark ~= '+' and mark ~= '\\' then old_left = old_left - 1 end
      if mark ~= '-' and mark ~= '\\' then line, new_left = line + 1, new_left - 1 end
    else
      local old_count, begin, new_count = one:match('^@@ %-%d+,?(%d*) %+(%d+),?(%d*) @@')
      if begin then
        line = tonumber(begin)
        old_left, new_left = tonumber(old_count) or 1, tonumber(new_count) or 1
      end
      -- Git ends a name that has a space with a tab. A name that it quotes leads nowhere.
      if mark == '-' then
        path = one:match('^%-%-%- a/(.-)\t?$')
      elseif mark == '+' and one ~= '+++ /dev/null' then
        path = one:match('^%+%+%+ b/(.-)\t?$')
      end
      table.insert(found, { text = one, path = path, line = math.max(line, 1), is_hunk = begin ~= nil })
    end
  end
  return found
end

return M
