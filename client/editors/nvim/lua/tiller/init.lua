--- What the commands do: one process of `tiller rpc`, one session and one chat in this Neovim.

local changes = require('tiller.changes')
local Chat = require('tiller.chat')
local keys = require('tiller.keys')
local lending = require('tiller.lending')
local requests = require('tiller.requests')
local Rpc = require('tiller.rpc')
local Session = require('tiller.session')
local text = require('tiller.text')

local M = { command = { 'tiller' } }

--- Sessions that are offered for choice.
local SESSIONS_LISTED = 100

local function fail(message)
  vim.notify('tiller: ' .. text.one_line(message), vim.log.levels.ERROR)
end

--- `command`: the program with its first arguments, if `tiller` is not in the `PATH`.
function M.setup(options)
  local command = (options or {}).command or { 'tiller' }
  M.command = type(command) == 'table' and command or { command }
end

local handlers = {}

function handlers.event(event)
  local session = M.session
  if not session or event.session_id ~= session.id then
    return
  end
  session:apply(event)
  if not M.is_live then
    return
  end
  local body = event.body
  if body.type == 'request_opened' then
    vim.notify('tiller asks: ' .. text.one_line(body.request.title), vim.log.levels.WARN)
  elseif body.type == 'item_completed' and body.item.type == 'patch' then
    changes.reload()
    changes.warn_of_unsaved(session.workspace, body.item.files or {})
  elseif body.type == 'item_completed' and body.item.type == 'tool_call' or body.type == 'history_reverted' then
    changes.reload()
  end
  M.chat:update()
end

function handlers.caught_up(session_id)
  if M.session and session_id == M.session.id then
    M.is_live = true
    M.chat:show(M.session)
  end
end

function handlers.followers(followers)
  if M.session and followers.session_id == M.session.id then
    M.session.others = followers.names
    M.chat:update()
  end
end

function handlers.file_wanted(wanted)
  local in_view = M.session and M.session.id == wanted.session_id
  lending.answer(M.rpc, wanted, in_view and M.directory or nil)
end

--- Lend the session in view what is not saved here.
local function lend()
  if M.rpc and M.session then
    lending.lend(M.rpc, M.session.id)
  end
end

function handlers.started_over(session_id)
  if M.session and session_id == M.session.id then
    M.is_live = false
    M.session:reset()
  end
end

function handlers.state(state, message)
  lend()
  M.chat.connection = state == 'reconnecting' and 'reconnecting ' .. (message or '') or ''
  M.chat:update()
end

handlers.failed = fail

--- The chat and the process, made when they are needed first.
local function prepare()
  if not M.chat or not M.chat:is_valid() then
    M.chat = Chat.new()
    keys.map(M)
    if M.session and M.is_live then
      M.chat:show(M.session)
    end
  end
  if not M.rpc then
    M.rpc = Rpc.new(M.command, handlers)
    lending.keep(lend)
  end
end

--- Show a session of a directory from its first event on.
function M.follow(session_id, directory)
  if M.session and M.session.id == session_id then
    return
  elseif M.session then
    M.rpc:unfollow(M.session.id)
    lending.take_back(M.rpc, M.session.id)
  end
  M.session, M.is_live = Session.new(session_id), false
  M.directory = directory
  M.chat:show(M.session)
  M.rpc:follow(session_id, 0)
  lend()
end

local function workspace()
  local directory = vim.fn.getcwd()
  return vim.loop.fs_realpath(directory) or directory
end

local function create(on_session, on_lost)
  local directory = workspace()
  M.rpc:submit({ type = 'session_create', workspace = directory }, function(result)
    M.follow(result.session_id, directory)
    on_session()
  end, on_lost)
end

--- Call `on_session` once there is a session: the one shown, or the most recently active one of this directory, or a new one.
--- If there can be none, `on_lost` is called.
local function with_session(on_session, on_lost)
  prepare()
  if M.session then
    on_session()
    return
  end
  local directory = workspace()
  M.rpc:submit({ type = 'session_list', workspace = directory, limit = 1 }, function(result)
    local last = result.sessions[1]
    if last then
      M.follow(last.session_id, directory)
      on_session()
    else
      create(on_session, on_lost)
    end
  end, on_lost)
end

--- Open the chat; with `is_new` in a new session. A prompt is sent.
function M.open(prompt, is_new)
  prepare()
  M.chat:open()
  local function send()
    if prompt ~= '' then
      M.send(prompt)
    end
  end
  local function lost()
    M.chat:give_back(prompt)
  end
  if is_new then
    create(send, lost)
  else
    with_session(send, lost)
  end
end

--- Send input. `context` is text that comes with it; `delivery` is as in the op `user_input`.
function M.send(words, delivery, context)
  if words == '' then
    fail('there is nothing to send; write a prompt, or give one to the command')
    return
  end
  local function lost()
    M.chat:give_back(words)
  end
  with_session(function()
    lending.lend_first(M.rpc, M.session.id)
    M.rpc:submit({
      type = 'user_input',
      session_id = M.session.id,
      text = words,
      context = context,
      delivery = delivery or 'auto',
    }, nil, lost)
  end, lost)
end

--- Send what stands in the prompt.
function M.send_prompt()
  prepare()
  M.send(M.chat:take_prompt())
end

--- Send a question about lines of the current buffer, as they are here, saved or not.
function M.send_lines(words, first, last)
  if words == '' then
    vim.ui.input({ prompt = ('About lines %d to %d: '):format(first, last) }, function(typed)
      if typed and typed ~= '' then
        M.send_lines(typed, first, last)
      end
    end)
    return
  end
  local path = vim.fn.expand('%:p')
  local lines = vim.api.nvim_buf_get_lines(0, first - 1, last, false)
  local name = path ~= '' and path or 'a buffer without a name'
  local root = (M.session and M.session.workspace ~= '' and M.session.workspace or workspace()) .. '/'
  if vim.startswith(name, root) then
    name = name:sub(#root + 1)
  end
  local context = ('%s, lines %d to %d:\n%s\n'):format(name, first, last, table.concat(lines, '\n'))
  M.send(words, 'auto', context)
end

--- Call `action` with the session, or say that there is none.
local function with_shown(action)
  if M.session then
    action(M.session)
  else
    fail('no session is open; :Tiller opens one')
  end
end

function M.interrupt()
  with_shown(function(session)
    M.rpc:submit({ type = 'interrupt', session_id = session.id })
  end)
end

--- Answer the request at the cursor of the chat, or else the only one that is open.
function M.answer(decision, words)
  with_shown(function(session)
    local request = keys.request_here(M.chat)
    local open = session:open_requests()
    if not request and #open > 1 then
      fail(('%d requests are open; put the cursor on one in the chat'):format(#open))
    elseif not request and #open == 0 then
      fail('no request is open')
    else
      requests.answer(M.rpc, request or open[1].request, decision, words)
    end
  end)
end

--- List the changes of the latest turn in the quickfix list.
function M.changes()
  with_shown(function(session)
    if not session.turn_id then
      fail('this session has no turn yet')
      return
    end
    local op = { type = 'session_diff', session_id = session.id, turn_id = session.turn_id }
    M.rpc:submit(op, function(result)
      changes.list(session.workspace, result, 'tiller: changes of the turn')
    end)
  end)
end

local function list(on_sessions)
  prepare()
  M.rpc:submit({ type = 'session_list', limit = SESSIONS_LISTED }, function(result)
    on_sessions(result.sessions)
  end)
end

--- Choose one of the sessions, most recently active first.
function M.sessions()
  list(function(sessions)
    local function label(one)
      local title = text.one_line(one.title or '')
      return ('%s  %s  %s  %s'):format(one.session_id:sub(-8), one.status or 'idle', text.one_line(one.workspace), title)
    end
    vim.ui.select(sessions, { prompt = 'Session', format_item = label }, function(one)
      if one then
        M.chat:open()
        M.follow(one.session_id, one.workspace)
      end
    end)
  end)
end

--- Open the session whose id begins or ends with `name`.
function M.attach(name)
  list(function(sessions)
    local wanted = name:upper()
    local found = vim.tbl_filter(function(one)
      return vim.startswith(one.session_id, wanted) or vim.endswith(one.session_id, wanted)
    end, sessions)
    if #found == 1 then
      M.chat:open()
      M.follow(found[1].session_id, found[1].workspace)
    else
      fail(('%d sessions are named %s; see :TillerSessions'):format(#found, name))
    end
  end)
end

return M
