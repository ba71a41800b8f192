--- Lends a session the buffers of this Neovim: the daemon asks for the text of a file, and gets that of
--- its buffer if it has changes that are not saved.

local M = {}

--- A third of the time for which the daemon keeps a loan.
local RENEW_MS = 200 * 1000

--- The daemon takes no longer text.
local TEXT_CHARS_MAX = 1024 * 1024

--- This Neovim, among all that lend to a session.
local LENDER = ('nvim-%d-%d.%06d'):format(vim.loop.getpid(), vim.loop.gettimeofday())

local function real(path)
  return vim.loop.fs_realpath(path) or path
end

--- The text of a file below a directory as it will be when its buffer is saved; nil if nothing is to be
--- saved. The daemon may run on another machine, and must not read other buffers of this one.
local function unsaved(path, directory)
  local wanted, root = vim.loop.fs_realpath(path), vim.loop.fs_realpath(directory)
  if not (wanted and root and vim.startswith(wanted, root:gsub('/$', '') .. '/')) then
    return nil
  end
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    local is_changed = vim.bo[buffer].modified and vim.bo[buffer].buftype == ''
    if is_changed and real(vim.api.nvim_buf_get_name(buffer)) == wanted then
      local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), '\n')
      text = vim.bo[buffer].endofline and text .. '\n' or text
      return vim.fn.strchars(text) <= TEXT_CHARS_MAX and text or nil
    end
  end
  return nil
end

local function loan(session_id, reads_files)
  return { type = 'session_lend', session_id = session_id, lender = LENDER, reads_files = reads_files }
end

--- Lend a session the reading of files, or renew that.
function M.lend(rpc, session_id)
  rpc:tell(loan(session_id, true))
end

--- Lend before an input, which a new daemon may get.
function M.lend_first(rpc, session_id)
  rpc:submit(loan(session_id, true), nil, nil, true)
end

function M.take_back(rpc, session_id)
  rpc:tell(loan(session_id, false))
end

--- Answer the daemon's question about a file; only one below `directory` may be lent.
function M.answer(rpc, wanted, directory)
  local words = directory and unsaved(wanted.path, directory) or nil
  rpc:tell({ type = 'lent_file', question_id = wanted.question_id, text = words })
end

--- Call `renew` as often as a loan must be renewed.
function M.keep(renew)
  local timer = vim.loop.new_timer()
  timer:start(RENEW_MS, RENEW_MS, vim.schedule_wrap(renew))
end

return M
