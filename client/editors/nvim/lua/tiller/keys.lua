--- The keys of the chat, of its prompt, and of a request's own window.

local changes = require('tiller.changes')
local requests = require('tiller.requests')

local M = {}

--- The open request at the cursor, if the current window shows the chat or a request.
function M.request_here(chat)
  local buffer = vim.api.nvim_get_current_buf()
  if buffer ~= chat.buffer then
    return nil
  end
  local block = chat:block_at(vim.api.nvim_win_get_cursor(0)[1])
  return block and block.kind == 'request' and not block.resolution and block.request or nil
end

local function map(buffer, mode, key, action, description)
  vim.keymap.set(mode, key, action, { buffer = buffer, desc = 'tiller: ' .. description })
end

--- Keys for answers; `answer(decision, words)` gives them.
local function map_answers(buffer, answer)
  for _, decision in ipairs({ 'always', 'always_here', 'reject' }) do
    map(buffer, 'n', requests.KEYS[decision], function() answer(decision) end, decision)
  end
  map(buffer, 'n', requests.KEYS.once, function() answer('once') end, 'once, or reply')
  map(buffer, 'n', requests.END_KEY, function() answer('reject', '') end, 'reject and end the turn')
end

--- Show the request at the cursor, or the only one, in a window of its own.
local function view(tiller)
  local open = tiller.session and tiller.session:open_requests() or {}
  local request = M.request_here(tiller.chat) or (#open == 1 and open[1].request)
  if not request then
    return
  end
  requests.view(request, function(buffer)
    map_answers(buffer, function(decision, words)
      vim.api.nvim_buf_delete(buffer, { force = true })
      requests.answer(tiller.rpc, request, decision, words)
    end)
  end)
end

--- Go to the place that the line is about; a request is shown instead.
local function enter(tiller)
  if M.request_here(tiller.chat) then
    view(tiller)
    return
  end
  local target = tiller.chat:target_at(vim.api.nvim_win_get_cursor(0)[1])
  if target then
    changes.open(tiller.session.workspace, target)
  end
end

--- Map the keys of a new chat.
function M.map(tiller)
  local chat, prompt = tiller.chat.buffer, tiller.chat.prompt
  map(chat, 'n', '<CR>', function() enter(tiller) end, 'go to the place')
  map(chat, 'n', 'gf', function() enter(tiller) end, 'go to the place')
  map(prompt, 'n', '<CR>', tiller.send_prompt, 'send')
  map(prompt, 'i', '<C-s>', function()
    vim.cmd('stopinsert')
    tiller.send_prompt()
  end, 'send')
  for _, buffer in ipairs({ chat, prompt }) do
    map_answers(buffer, tiller.answer)
    map(buffer, 'n', requests.KEYS.view, function() view(tiller) end, 'show what is asked')
    map(buffer, 'n', '<C-c>', tiller.interrupt, 'interrupt the turn')
  end
end

return M
