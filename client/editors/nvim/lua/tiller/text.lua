--- Makes text of models and tools safe to show: what is invisible or controls a screen becomes visible.
--- Neovim shows some of these characters itself, but not all, and a diff to approve must show every one.

local M = {}

--- Code points without ink, or with power over their neighbours: first, last.
local INVISIBLE = {
  { 0x7f, 0x9f }, { 0xad, 0xad }, { 0x34f, 0x34f }, { 0x61c, 0x61c }, { 0x115f, 0x1160 },
  { 0x17b4, 0x17b5 }, { 0x180b, 0x180f }, { 0x200b, 0x200f }, { 0x2028, 0x202e }, { 0x2060, 0x206f },
  { 0x3164, 0x3164 }, { 0xd800, 0xf8ff }, { 0xfe00, 0xfe0f }, { 0xfeff, 0xfeff }, { 0xffa0, 0xffa0 },
  { 0x600, 0x605 }, { 0x6dd, 0x6dd }, { 0x70f, 0x70f }, { 0x890, 0x891 }, { 0x8e2, 0x8e2 },
  { 0xfff0, 0xfffb }, { 0xfffe, 0xffff }, { 0x110bd, 0x110bd }, { 0x110cd, 0x110cd },
  { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0x10ffff },
}

--- In text to approve also: unusual spaces and blanks, marks that join the letter before, our notation.
local AMBIGUOUS = {
  { 0xa0, 0xa0 }, { 0x300, 0x36f }, { 0x1160, 0x11ff }, { 0x1680, 0x1680 }, { 0x1ab0, 0x1aff },
  { 0x1dc0, 0x1dff }, { 0x2000, 0x200a }, { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x20d0, 0x20ff },
  { 0x2400, 0x2421 }, { 0x27e8, 0x27e8 }, { 0x2800, 0x2800 }, { 0x3000, 0x3000 }, { 0xd7b0, 0xd7ff },
  { 0xfe20, 0xfe2f }, { 0x16fe4, 0x16fe4 }, { 0x1d159, 0x1d159 },
}

--- Joiners and emoji selectors, which correct spelling needs in prose.
local JOINERS = { [0x200c] = true, [0x200d] = true, [0xfe0e] = true, [0xfe0f] = true }

local CHARACTER = '[%z\1-\127\194-\244][\128-\191]*'

local function code_point(character)
  local first = character:byte()
  if first < 0x80 then
    return first
  end
  local code = first < 0xe0 and first % 0x20 or first < 0xf0 and first % 0x10 or first % 0x08
  for at = 2, #character do
    code = code * 0x40 + character:byte(at) % 0x40
  end
  return code
end

local function within(code, ranges)
  for _, range in ipairs(ranges) do
    if code >= range[1] and code <= range[2] then
      return true
    end
  end
  return false
end

--- The picture of a C0 control (`␛`), the code point of anything else (`⟨U+202E⟩`).
local function visible(code)
  if code < 0x20 then
    return string.char(0xe2, 0x90, 0x80 + code)
  end
  return code == 0x7f and '␡' or ('⟨U+%04X⟩'):format(code)
end

local function in_prose(character)
  local code = code_point(character)
  if code == 0x0a or code == 0x09 or JOINERS[code] then
    return character
  end
  return (code < 0x20 or within(code, INVISIBLE)) and visible(code) or character
end

--- Whether Neovim would draw a character over the one before it, as it does with any number of marks.
local function joins(character)
  return #character > 1 and vim.fn.strchars('a' .. character, true) == 1
end

local function in_verbatim(character)
  local code = code_point(character)
  if code == 0x0a then
    return character
  end
  local hidden = code < 0x20 or within(code, INVISIBLE) or within(code, AMBIGUOUS) or joins(character)
  return hidden and visible(code) or character
end

--- Text for reading; tab and newline stay.
function M.sanitized(text)
  text = text:gsub('\r\n', '\n')
  if not text:find('[^\n\t\32-\126]') then
    return text
  end
  return (text:gsub(CHARACTER, in_prose))
end

--- Text to approve: no character is invisible or ambiguous, also not a space at the end of a line.
function M.verbatim(text)
  if text:find('[^\n\32-\126]') then
    text = text:gsub(CHARACTER, in_verbatim)
  end
  return (text .. '\n'):gsub(' +\n', function(blanks)
    return ('␠'):rep(#blanks - 1) .. '\n'
  end):sub(1, -2)
end

--- `sanitized`, in one line.
function M.one_line(text)
  return vim.trim(M.sanitized((text:gsub('%s+', ' '))))
end

--- The lines of a text, without an empty one at its end.
function M.lines(text)
  local lines = vim.split(text, '\n', { plain = true })
  if #lines > 1 and lines[#lines] == '' then
    lines[#lines] = nil
  end
  return lines
end

--- A duration for people.
function M.seconds(duration_s)
  if duration_s < 0.9995 then
    return ('%d ms'):format(duration_s * 1000 + 0.5)
  elseif duration_s < 59.95 then
    return ('%.1f s'):format(duration_s)
  end
  local whole = math.floor(duration_s + 0.5)
  return ('%d min %d s'):format(math.floor(whole / 60), whole % 60)
end

return M
