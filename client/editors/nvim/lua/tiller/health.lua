--- `:checkhealth tiller`: the program, its version, and whether the daemon answers.

local M = {}

local health = vim.health or require('health')
local start = health.start or health.report_start
local ok = health.ok or health.report_ok
local warn = health.warn or health.report_warn
local error = health.error or health.report_error

local function run(arguments)
  local command = vim.list_extend(vim.deepcopy(require('tiller').command), arguments)
  local output = vim.trim(vim.fn.system(command))
  return vim.v.shell_error == 0, require('tiller.text').sanitized(output)
end

function M.check()
  start('tiller')
  if vim.fn.has('nvim-0.7') == 0 then
    error('Neovim is older than 0.7; install a newer one')
    return
  end
  ok('Neovim is 0.7 or newer')
  local program = require('tiller').command[1]
  if vim.fn.executable(program) == 0 then
    error(program .. ' is not found', { 'install tiller as its README says', "require('tiller').setup({ command = '/path/of/tiller' })" })
    return
  end
  local works, version = run({ '--version' })
  if not works then
    error(program .. ' can\'t be run: ' .. version)
    return
  end
  ok(('%s is %s'):format(vim.fn.exepath(program), version))
  -- This does not start a daemon; :Tiller does.
  local answers, status = run({ 'daemon', 'status' })
  if answers then
    ok('the daemon answers')
  else
    warn('the daemon does not answer: ' .. status, { ':Tiller starts it', 'tiller doctor says more' })
  end
end

return M
