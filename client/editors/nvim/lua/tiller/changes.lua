--- Files that an agent changed: reload their buffers, list them, go to them.

local render = require('tiller.render')
local text = require('tiller.text')

local M = {}

--- The absolute path of a path in a session's workspace.
function M.absolute(workspace, path)
  return path:sub(1, 1) == '/' and path or workspace .. '/' .. path
end

local function is_ours(buffer)
  return vim.startswith(vim.api.nvim_buf_get_name(buffer), 'tiller://')
end

--- Go to a place in a window that is not the chat's.
function M.open(workspace, target)
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    local is_floating = vim.api.nvim_win_get_config(window).relative ~= ''
    local buffer = vim.api.nvim_win_get_buf(window)
    if not is_floating and not is_ours(buffer) and vim.bo[buffer].buftype == '' then
      vim.api.nvim_set_current_win(window)
      break
    end
  end
  if is_ours(0) then
    vim.cmd('topleft split')
  end
  vim.cmd('edit ' .. vim.fn.fnameescape(M.absolute(workspace, target.path)))
  local last = vim.api.nvim_buf_line_count(0)
  vim.api.nvim_win_set_cursor(0, { math.min(target.line or 1, last), 0 })
end

--- Reload the buffers whose file has changed. One with changes of its own is left to the user.
function M.reload()
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    local is_file = vim.api.nvim_buf_is_loaded(buffer) and vim.bo[buffer].buftype == ''
    if is_file and vim.api.nvim_buf_get_name(buffer) ~= '' and not vim.bo[buffer].modified then
      vim.bo[buffer].autoread = true
      vim.cmd(('silent! checktime %d'):format(buffer))
    end
  end
end

--- Whether a buffer of this file has changes that are not saved.
local function is_unsaved(path)
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buffer) == path then
      return vim.bo[buffer].modified
    end
  end
  return false
end

--- Say which of these files have unsaved changes in a buffer.
function M.warn_of_unsaved(workspace, paths)
  for _, path in ipairs(paths) do
    if is_unsaved(M.absolute(workspace, path)) then
      local message = '%s was changed by the agent and has unsaved changes here; :edit! takes the file'
      vim.notify('tiller: ' .. message:format(text.one_line(path)), vim.log.levels.WARN)
    end
  end
end

--- Fill the quickfix list with the hunks of a `session_diff`, and the files without any.
function M.list(workspace, result, title)
  local entries, has_hunk = {}, {}
  for _, one in ipairs(render.diff_lines(result.diff or '')) do
    if one.is_hunk and one.path then
      has_hunk[one.path] = true
      table.insert(entries, { filename = M.absolute(workspace, one.path), lnum = one.line, text = one.text })
    end
  end
  for _, file in ipairs(result.files or {}) do
    if not has_hunk[file.path] then
      table.insert(entries, { filename = M.absolute(workspace, file.path), lnum = 1, text = file.kind })
    end
  end
  vim.fn.setqflist({}, ' ', { title = title, items = entries })
  if #entries > 0 then
    vim.cmd('copen')
  else
    vim.notify('tiller: no file was changed')
  end
end

return M
