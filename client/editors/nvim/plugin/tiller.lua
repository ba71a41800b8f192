--- The commands. Nothing of the plugin is loaded before one of them is used.

if vim.g.loaded_tiller or vim.fn.has('nvim-0.7') == 0 then
  return
end
vim.g.loaded_tiller = true

local function tiller()
  return require('tiller')
end

local function command(name, action, options)
  vim.api.nvim_create_user_command(name, action, options)
end

command('Tiller', function(given)
  tiller().open(given.args, given.bang)
end, { nargs = '*', bang = true, desc = 'Open the chat, with ! in a new session, and send a prompt' })

command('TillerSend', function(given)
  if given.range > 0 then
    tiller().send_lines(given.args, given.line1, given.line2)
  elseif given.args ~= '' then
    tiller().send(given.args)
  else
    tiller().send_prompt()
  end
end, { nargs = '*', range = true, desc = 'Send a message, the lines of a range, or the prompt' })

command('TillerSteer', function(given)
  tiller().send(given.args, 'steer')
end, { nargs = '+', desc = 'Steer the running turn' })

command('TillerQueue', function(given)
  tiller().send(given.args, 'queue')
end, { nargs = '+', desc = 'Send a message when the running turn has ended' })

command('TillerInterrupt', function()
  tiller().interrupt()
end, { desc = 'Interrupt the running turn' })

command('TillerAnswer', function(given)
  local decision, words = given.args:match('^(%S+)%s*(.*)$')
  tiller().answer(decision, words)
end, {
  nargs = '+',
  complete = function()
    return { 'once', 'always', 'always_here', 'reject', 'answer' }
  end,
  desc = 'Answer the open request',
})

command('TillerChanges', function()
  tiller().changes()
end, { desc = 'List what the latest turn changed in files' })

command('TillerSessions', function()
  tiller().sessions()
end, { desc = 'Choose a session' })

command('TillerAttach', function(given)
  tiller().attach(given.args)
end, { nargs = 1, desc = 'Open a session by the beginning or the end of its id' })

vim.api.nvim_set_hl(0, 'TillerUser', { default = true, bold = true })
for group, link in pairs({
  TillerDim = 'Comment',
  TillerCall = 'Special',
  TillerDone = 'Identifier',
  TillerError = 'ErrorMsg',
  TillerWarning = 'WarningMsg',
  TillerAsking = 'Question',
  TillerAdded = 'DiffAdd',
  TillerRemoved = 'DiffDelete',
}) do
  vim.api.nvim_set_hl(0, group, { default = true, link = link })
end
