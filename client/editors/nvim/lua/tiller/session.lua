--- A session as its events make it: blocks in the order in which they are shown, and what goes on now.
--- Pure: it changes no buffer. `render` makes lines of a block.

local M = {}

local Session = {}
Session.__index = Session

function M.new(session_id)
  local session = setmetatable({ id = session_id, others = {} }, Session) -- names of other frontends
  session:reset()
  return session
end

--- Forget everything; the events come again from the first one.
function Session:reset()
  self.blocks = {} -- what is shown, in order
  self.by_id = {} -- the same by the id of the item, request or plan
  self.dirty = {} -- blocks to show anew
  self.workspace = ''
  self.title = ''
  self.status = 'idle'
  self.status_cause = ''
  self.queue = {}
  self.background = 0
  self.turn_id = nil -- the running turn, or the last one
end

--- Take the next event.
function Session:apply(event)
  local body = event.body
  local take = Session['_' .. body.type]
  if take then
    take(self, body, event)
  end
end

--- The open requests, oldest first.
function Session:open_requests()
  return vim.tbl_filter(function(block)
    return block.kind == 'request' and not block.resolution
  end, self.blocks)
end

--- The blocks to show anew since the last call, in their order.
function Session:take_dirty()
  local dirty = self.dirty
  self.dirty = {}
  return vim.tbl_filter(function(block) return dirty[block] end, self.blocks)
end

function Session:_add(block)
  block.count = 0 -- lines that it has in the buffer
  table.insert(self.blocks, block)
  if block.id then
    self.by_id[block.id] = block
  end
  self.dirty[block] = true
  return block
end

function Session:_note(text, tone)
  self:_add({ kind = 'note', text = text, tone = tone })
end

function Session:_session_created(body)
  self.workspace = body.workspace
end

function Session:_session_titled(body)
  self.title = body.title
end

function Session:_status_changed(body)
  self.status, self.status_cause = body.status, body.cause or ''
end

function Session:_queue_changed(body)
  self.queue = body.queue or {}
end

function Session:_background_changed(body)
  self.background = #vim.tbl_filter(function(one) return one.state == 'running' end, body.background)
end

function Session:_turn_started(_, event)
  self.turn_id = event.turn_id
end

function Session:_turn_ended(body)
  self:_add({ kind = 'turn', ended = body })
end

function Session:_item_started(body)
  self:_add({ kind = 'item', id = body.item.id, item = body.item, pieces = {} })
end

function Session:_item_delta(body)
  local block = self.by_id[body.item_id]
  if not block then
    return
  end
  local pieces = block.pieces[body.channel]
  if not pieces then
    pieces = { block.item[body.channel] or '' }
    block.pieces[body.channel] = pieces
  end
  table.insert(pieces, body.delta)
  self.dirty[block] = true
end

function Session:_item_completed(body)
  local block = self.by_id[body.item.id]
  if not block then
    self:_add({ kind = 'item', id = body.item.id, item = body.item, pieces = {}, done = true })
    return
  end
  block.item, block.pieces, block.done = body.item, {}, true
  self.dirty[block] = true
end

function Session:_tool_call_updated(body)
  local block = self.by_id[body.item_id]
  if not block then
    return
  end
  local item = block.item
  item.state, item.error_kind = body.state, body.error_kind
  item.title = body.title or item.title
  item.sub_agent = body.sub_agent or item.sub_agent
  self.dirty[block] = true
end

function Session:_request_opened(body)
  self:_add({ kind = 'request', id = body.request.id, request = body.request })
end

function Session:_request_resolved(body)
  local block = self.by_id[body.request_id]
  if block then
    block.resolution = body
    self.dirty[block] = true
  end
end

--- One block for the plan of a turn, where it was made first.
function Session:_plan_updated(body)
  local id = 'plan ' .. (self.turn_id or '')
  local block = self.by_id[id] or self:_add({ kind = 'plan', id = id })
  block.plan = body.plan
  self.dirty[block] = true
end

function Session:_history_compacted(body)
  self:_note(('≡ history was compacted: %d tokens, %d before'):format(body.tokens_after, body.tokens_before))
end

function Session:_history_reverted(body)
  local text = body.undone and '↷ the revert was undone: its turns count again'
    or '↶ reverted: history and files are as they were before the last turns above'
  self:_note(text, 'warning')
  for _, path in ipairs(body.conflicts or {}) do
    self:_note('  left as it is: ' .. path, 'warning')
  end
end

function Session:_warning(body)
  self:_note('! ' .. body.message, 'warning')
end

function Session:_error(body)
  self:_note('✗ ' .. body.message, 'error')
end

--- The text of an item's channel, as far as it has come.
function M.channel(block, name)
  local pieces = block.pieces[name]
  if not pieces then
    return block.item[name] or ''
  end
  if #pieces > 1 then
    pieces = { table.concat(pieces) }
    block.pieces[name] = pieces
  end
  return pieces[1]
end

return M
