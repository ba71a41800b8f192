/**
 * Makes text of models and tools safe to show, by the rules of the command line: what is invisible, or controls its
 * surroundings, becomes visible. The page of the chat inserts text as text only, so markup is no concern here.
 */

/** Invisible characters, and those that control others: controls, formats, private, unassigned, line separators. */
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;

/** The same in prose, in one pass, as streamed text is made safe again with each piece. */
const HIDDEN_IN_PROSE = new RegExp(`(?![\\n\\t\\u200c\\u200d\\ufe0e\\ufe0f])${HIDDEN.source}`, "gu");

/** In text to approve also: unusual spaces, letters that join the one before, symbols without ink, our own notation. */
const AMBIGUOUS =
  /[\p{Zs}\u1160-\u11ff\ud7b0-\ud7ff\u2800\u{16fe4}\u{1d159}\u27e8\u2400-\u2421]/u;

const MARK = /[\p{Mn}\p{Me}]/u;

/** Most marks on one character in text to approve; more of them hide each other. */
const MARKS_MAX = 2;

/** Text for reading; tab and newline stay, and joiners and emoji selectors, which correct spelling needs. */
export function sanitized(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN_IN_PROSE, visible);
}

/** `sanitized`, in one line. */
export function oneLine(text: string): string {
  return sanitized(text.replace(/\s+/g, " ")).trim();
}

/** Text to approve, character by character: none is invisible or ambiguous, also not a blank at the end of a line. */
export function verbatim(text: string): string {
  let marksLeft = 0;
  const shown = [...text].map((character) => {
    if (character === "\n" || character === " ") {
      marksLeft = 0;
      return character;
    }
    if (HIDDEN.test(character) || AMBIGUOUS.test(character)) {
      marksLeft = 0;
      return visible(character);
    }
    if (!MARK.test(character)) {
      marksLeft = MARKS_MAX;
      return character;
    }
    return marksLeft-- > 0 ? character : visible(character);
  });
  return shown.join("").replace(/ +$/gm, (blanks) => "␠".repeat(blanks.length));
}

/** One line for labels and notifications, where an editor would make icons of `$(…)` and links of `[…](…)`. */
export function label(text: string): string {
  return oneLine(text).replaceAll("$(", "$ (").replaceAll("](", "] (");
}

/** The lines of a text, without an empty one at its end. */
export function lines(text: string): string[] {
  const found = text.split("\n");
  if (found.length > 1 && found.at(-1) === "") found.pop();
  return found;
}

/** A duration for people. */
export function seconds(durationS: number): string {
  if (durationS < 0.9995) return `${Math.round(durationS * 1000)} ms`;
  if (durationS < 59.95) return `${durationS.toFixed(1)} s`;
  const whole = Math.round(durationS);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** The picture of a C0 control (`␛`), the code point of anything else (`⟨U+202E⟩`). */
function visible(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
