--- The process `tiller rpc`: lines of JSON to it and from it. It knows no session's content.
---
--- `tiller rpc` reconnects to the daemon by itself. This module starts it again if it dies: what is
--- followed goes on after the last event, and a submission without an answer is sent again with its id,
--- under which the daemon executes it once.

local M = {}

local Rpc = {}
Rpc.__index = Rpc

--- Wait before a submission is sent again whose answer did not come in time.
local RESUBMIT_MS = 1000

--- An id that nobody else chooses: process, time and counter.
local counter = 0
local function new_id()
  counter = counter + 1
  local seconds, microseconds = vim.loop.gettimeofday()
  return ('nvim-%d-%d.%06d-%d'):format(vim.loop.getpid(), seconds, microseconds, counter)
end

--- Wait for the end of the process when Neovim ends.
local END_MS = 500

--- A client that is not running yet. `handlers`: `event`, `caught_up`, `followers`, `file_wanted`,
--- `started_over` and `state` get what a line says; `failed` gets a sentence when the process can't be used.
function M.new(command, handlers)
  local rpc = setmetatable({
    command = command,
    handlers = handlers,
    pending = {}, -- by tag: the line and what gets its answer, until it comes
    order = {}, -- tags in the order of their submission
    connected = false, -- the process has said that it is
    followed = {}, -- by session: the last event that was handed over
    failed = {}, -- by session that could not be followed any more: the last event that was handed over
    leaving = {}, -- sessions whose last events may still be on their way
    next_tag = 1,
    rest = {}, -- pieces of a line that has not ended
    said = {}, -- what the process wrote to stderr
  }, Rpc)
  vim.api.nvim_create_autocmd('VimLeavePre', { callback = function() rpc:_leave() end })
  return rpc
end

--- Start the process if it does not run, and submit what has no answer yet.
function Rpc:start()
  if self.job then
    return
  end
  self.rest, self.said, self.leaving = {}, {}, {}
  local arguments = vim.list_extend(vim.deepcopy(self.command), { 'rpc', '--name', 'neovim' })
  local started, job = pcall(vim.fn.jobstart, arguments, {
    on_stdout = function(job, data) self:_read(job, data) end,
    on_stderr = function(_, data) vim.list_extend(self.said, data) end,
    on_exit = function(job, status) self:_ended(job, status) end,
  })
  if not started or job <= 0 then
    local advice = "%s can't be run; install tiller, or set its path, see :help tiller-setup"
    self:_give_up(advice:format(self.command[1]))
    return
  end
  self.job = job
  for _, tag in ipairs(self.order) do
    self:_send(self.pending[tag].line)
  end
end

--- Submit an op. `on_result(result)` follows if it is accepted; otherwise `failed` gets the reason, after
--- `on_lost()`; with `is_quiet` nobody does.
function Rpc:submit(op, on_result, on_lost, is_quiet)
  local tag = self.next_tag
  self.next_tag = tag + 1
  local line = { submit = { op = op, id = new_id() }, tag = tag }
  self.pending[tag] = { line = line, on_result = on_result, on_lost = on_lost, is_quiet = is_quiet }
  table.insert(self.order, tag)
  if self.job then
    self:_send(line)
  else
    self:start()
  end
end

--- Submit an op quietly, and only if there is a daemon.
function Rpc:tell(op)
  if self.connected and self.has_daemon then
    self:submit(op, nil, nil, true)
  end
end

--- Hand over the events of a session after `after`.
function Rpc:follow(session_id, after)
  self.failed[session_id] = nil
  self.followed[session_id] = after
  if self.connected then
    self:_send({ follow = session_id, after = after })
  else
    self:start() -- and follow as soon as it is connected
  end
end

function Rpc:unfollow(session_id)
  if self.followed[session_id] and self.connected then
    self:_send({ unfollow = session_id })
    self.leaving[session_id] = true
  end
  self.followed[session_id], self.failed[session_id] = nil, nil
end

--- End the process; what is followed and submitted goes on with the next start.
function Rpc:stop()
  if self.job then
    vim.fn.jobstop(self.job)
    self.job, self.connected = nil, false
  end
end

--- Neovim ends: let the process end by itself, as it takes back what was lent.
function Rpc:_leave()
  if self.job then
    local job = self.job
    self.job, self.connected = nil, false
    vim.fn.chanclose(job, 'stdin')
    vim.fn.jobwait({ job }, END_MS)
  end
end

--- A process that is just ending takes nothing: the next one gets what has no answer.
function Rpc:_send(line)
  pcall(vim.fn.chansend, self.job, vim.json.encode(line) .. '\n')
end

function Rpc:_take(tag)
  local pending = tag and self.pending[tag]
  if not pending then
    return nil
  end
  self.pending[tag] = nil
  for at, one in ipairs(self.order) do
    if one == tag then
      table.remove(self.order, at)
      break
    end
  end
  return pending
end

--- Data comes in pieces; the first one continues the line before.
function Rpc:_read(job, data)
  if job ~= self.job then
    return
  end
  for at, piece in ipairs(data) do
    if at > 1 then
      local text = table.concat(self.rest)
      self.rest = {}
      if text ~= '' then
        self:_handle(vim.json.decode(text, { luanil = { object = true, array = true } }))
      end
    end
    table.insert(self.rest, piece)
  end
end

function Rpc:_handle(line)
  local handlers = self.handlers
  if line.event then
    local event = line.event
    local last = self.followed[event.session_id]
    if last and event.seq > last and not self.leaving[event.session_id] then
      self.followed[event.session_id] = event.seq
      handlers.event(event)
    end
  elseif line.answer then
    self:_answered(line.tag, line.answer)
  elseif line.caught_up then
    handlers.caught_up(line.caught_up.session_id)
  elseif line.state then
    self:_state(line)
  elseif line.followers then
    handlers.followers(line.followers)
  elseif line.file_wanted then
    handlers.file_wanted(line.file_wanted)
  elseif line.started_over then
    self.followed[line.started_over] = 0
    handlers.started_over(line.started_over)
  elseif line.unfollowed then
    self.leaving[line.unfollowed.session_id] = nil
    if line.unfollowed.message then
      local id = line.unfollowed.session_id
      self.failed[id], self.followed[id] = self.followed[id], nil
      handlers.failed(line.unfollowed.message)
    end
  elseif line.error then
    self:_error(line.tag, line.error)
  end
end

function Rpc:_answered(tag, answer)
  local pending = self:_take(tag)
  if not pending then
    return
  elseif answer.type == 'accepted' then
    -- After a failure, such as a full disk, the session can be followed again.
    local id = pending.line.submit.op.session_id
    if id and self.failed[id] then
      self:follow(id, self.failed[id])
    end
    if pending.on_result then
      pending.on_result(answer.result or {})
    end
  else
    if pending.on_lost then
      pending.on_lost()
    end
    if not pending.is_quiet then
      self.handlers.failed(answer.message)
    end
  end
end

--- A submission whose answer is unknown is sent again: its id makes that safe.
function Rpc:_error(tag, failure)
  local pending = tag and self.pending[tag]
  local is_quiet = pending and pending.is_quiet
  if not is_quiet then
    self.handlers.failed(failure.message)
  end
  if is_quiet or not (pending and failure.submission_id) then
    self:_take(tag)
    return
  end
  vim.defer_fn(function()
    if self.job and self.pending[tag] then
      self:_send(self.pending[tag].line)
    end
  end, RESUBMIT_MS)
end

function Rpc:_state(line)
  local log_id = line.hello and line.hello.log_id
  if log_id and not self.connected then
    self.connected = true
    for session_id, after in pairs(self.followed) do
      -- Numbers of another log mean nothing. A process that ran meanwhile says `started_over` itself.
      if self.log_id and log_id ~= self.log_id and after > 0 then
        self.followed[session_id] = 0
        self.handlers.started_over(session_id)
      end
      self:_send({ follow = session_id, after = self.followed[session_id] })
    end
  end
  self.has_daemon = line.state == 'connected'
  self.log_id = log_id or self.log_id
  self.handlers.state(line.state, line.message)
end

--- One that had worked is started again. One that never connected would only fail again: the next
--- command of the user tries.
function Rpc:_ended(job, status)
  if job ~= self.job then
    return
  end
  local had_worked = self.connected
  self.job, self.connected = nil, false
  if had_worked and vim.v.exiting == vim.NIL then
    self.handlers.state('reconnecting')
    self:start()
    return
  end
  local said = vim.trim(table.concat(self.said, '\n'))
  local ended = 'tiller rpc ended with status %d; see :checkhealth tiller'
  self:_give_up(said ~= '' and said or ended:format(status))
end

--- Nothing can be submitted now: what waits is given back, and not sent by a later start.
function Rpc:_give_up(message)
  local waiting = vim.tbl_map(function(tag) return self.pending[tag] end, self.order)
  self.pending, self.order = {}, {}
  for _, pending in ipairs(waiting) do
    if pending.on_lost then
      pending.on_lost()
    end
  end
  self.handlers.failed(message)
end

return M
