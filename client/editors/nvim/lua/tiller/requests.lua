--- Requests of the agent: how they look in the chat, their answers, and the diff of what is asked.
--- What is to be approved is shown complete and verbatim.

local text = require('tiller.text')

local M = {}

--- Two keys each, so that none is pressed by accident while the cursor moves through the chat.
M.KEYS = { once = 'gy', always = 'ga', always_here = 'gh', reject = 'gr', answer = 'gy', view = 'gd' }

--- Rejects without a reason, which ends the turn.
M.END_KEY = 'gR'

local RESOLVED = {
  once = '✓ allowed once',
  always = '✓ allowed for the session',
  always_here = '✓ allowed always here',
  reject = '✗ rejected',
  answer = '✓ answered',
  cancelled = '· withdrawn',
}

--- The decisions that a request takes, the first one being the usual.
function M.decisions(request)
  if request.kind == 'question' then
    return { 'answer', 'reject' }
  end
  local decisions = { 'once' }
  if #(request.always or {}) > 0 then
    table.insert(decisions, 'always')
    if (request.always_here or '') ~= '' then
      table.insert(decisions, 'always_here')
    end
  end
  return vim.list_extend(decisions, { 'reject' })
end

--- The key for `once` replies to a question.
function M.usual(request, decision)
  return decision == 'once' and M.decisions(request)[1] or decision
end

local function row(words)
  return (text.verbatim(words):gsub('\n', '␊'))
end

local function add_detail(page, request)
  local is_diff = request.detail_kind == 'diff'
  for _, line in ipairs(text.lines(text.verbatim(request.detail))) do
    local group = is_diff and ({ ['+'] = 'TillerAdded', ['-'] = 'TillerRemoved' })[line:sub(1, 1)]
    page:add('    ' .. line, group or 'TillerDim')
  end
end

--- The keys of an open request, in words.
local function hint(request)
  local words = {}
  for _, decision in ipairs(M.decisions(request)) do
    local word = decision == 'always_here' and 'always here' or decision
    table.insert(words, M.KEYS[decision] .. ' ' .. word)
  end
  if request.kind ~= 'question' then
    table.insert(words, M.END_KEY .. ' reject and end')
  end
  if request.detail_kind == 'diff' then
    table.insert(words, M.KEYS.view .. ' diff')
  end
  return table.concat(words, ' · ')
end

--- A request as a block of the chat.
function M.show(page, block)
  local request, resolved = block.request, block.resolution
  page:add('? ' .. row(request.title), 'TillerAsking')
  if resolved then
    local by = (resolved.by or '') ~= '' and ' by ' .. text.one_line(resolved.by) or ''
    local said = (resolved.text or '') ~= '' and ': ' .. text.one_line(resolved.text) or ''
    page:add('    ' .. RESOLVED[resolved.resolution] .. by .. said, 'TillerDim')
    return
  end
  if #(request.also or {}) > 0 then
    local names = vim.list_extend({ request.permission or '' }, request.also)
    page:add('! needs several permissions: ' .. table.concat(vim.tbl_map(row, names), ', '), 'TillerAsking')
  end
  for _, subject in ipairs(request.subjects or {}) do
    if subject ~= '' and subject ~= request.detail and not vim.endswith(' ' .. request.title, ' ' .. subject) then
      page:add('  · ' .. row(subject))
    end
  end
  if (request.detail or '') ~= '' then
    add_detail(page, request)
  end
  if #(request.always or {}) > 0 then
    local patterns = table.concat(vim.tbl_map(row, request.always), ', ')
    page:add(('    “always” allows %s: %s'):format(row(request.permission or ''), patterns), 'TillerDim')
  end
  if (request.always_here or '') ~= '' then
    page:add('    “always here” allows it in every session of ' .. row(request.always_here), 'TillerDim')
  end
  for at, choice in ipairs(request.choices or {}) do
    page:add(('    %d. %s'):format(at, row(choice)))
  end
  page:add('    ' .. hint(request), 'TillerAsking')
end

--- Ask for a reply to a question: one of its choices, or any text.
local function reply(request, submit)
  local function type_it()
    vim.ui.input({ prompt = row(request.title) .. ' ' }, function(words)
      if words and words ~= '' then
        submit(words)
      end
    end)
  end
  if #(request.choices or {}) == 0 then
    type_it()
    return
  end
  local other = 'Something else …'
  local choices = vim.list_extend(vim.deepcopy(request.choices), { other })
  vim.ui.select(choices, { prompt = row(request.title), format_item = row }, function(choice, at)
    if at == #choices then
      type_it()
    elseif choice then
      submit(choice)
    end
  end)
end

--- Answer a request; asks for the reply or the reason that a decision needs, unless `words` has it.
function M.answer(rpc, request, decision, words)
  decision = M.usual(request, decision)
  if not vim.tbl_contains(M.decisions(request), decision) then
    local possible = table.concat(M.decisions(request), ', ')
    vim.notify(('tiller: this request takes only: %s'):format(possible), vim.log.levels.ERROR)
    return
  end
  local function submit(said)
    rpc:submit({ type = 'answer', request_id = request.id, decision = decision, text = said or '' })
  end
  if decision == 'answer' and (words or '') == '' then
    reply(request, submit)
  elseif words or decision ~= 'reject' then
    submit(words)
  elseif request.kind == 'question' then
    submit()
  else
    -- Neovim can't always tell an empty input from Escape, so empty is no answer.
    vim.ui.input({ prompt = 'Reason: ' }, function(reason)
      if reason and reason ~= '' then
        submit(reason)
      end
    end)
  end
end

--- Show the whole detail of a request in a split of its own; the keys work there, too.
function M.view(request, map_keys)
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, text.lines(text.verbatim(request.detail or request.title)))
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].bufhidden = 'wipe'
  vim.bo[buffer].filetype = request.detail_kind == 'diff' and 'diff' or ''
  vim.cmd('botright split')
  vim.api.nvim_win_set_buf(0, buffer)
  pcall(vim.api.nvim_buf_set_name, buffer, 'tiller://request/' .. request.id)
  map_keys(buffer, request)
  return buffer
end

return M
