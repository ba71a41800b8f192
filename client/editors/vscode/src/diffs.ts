/** Unified diffs: the places that their lines lead to, and the two texts of each file, side by side. */

import { lines } from "./text.js";

/** A line of a file. */
export interface Place {
  path: string;
  /** From 1. */
  line: number;
}

/** A line of a diff, with the place that it is about. */
export interface DiffLine {
  text: string;
  place?: Place;
  /** Whether a hunk begins here. */
  isHunk: boolean;
}

/** A changed file: its whole texts, or only the parts that the diff has. */
export interface Sides {
  path: string;
  before: string;
  after: string;
}

export type Side = "before" | "after";

interface Hunk {
  header: string;
  /** Its first line in each file, from 0. */
  start: Record<Side, number>;
  before: string[];
  after: string[];
}

interface ChangedFile {
  path: string;
  hunks: Hunk[];
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;

/** The lines of a diff. A name that git quotes leads nowhere. */
export function diffLines(diff: string): DiffLine[] {
  const found: DiffLine[] = [];
  let path: string | undefined;
  let [line, oldLeft, newLeft] = [1, 0, 0];
  for (const text of lines(diff)) {
    const hunk = oldLeft > 0 || newLeft > 0 ? null : HUNK.exec(text);
    const inHunk = oldLeft > 0 || newLeft > 0;
    if (hunk) [line, oldLeft, newLeft] = [Number(hunk[3]), Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
    else if (!inHunk) path = nameIn(text, path);
    const isHunk = hunk !== null;
    const place = path === undefined ? {} : { place: { path, line: Math.max(line, 1) } };
    found.push({ text, isHunk, ...place });
    if (!inHunk || text.startsWith("\\")) continue;
    if (!text.startsWith("+")) oldLeft--;
    if (!text.startsWith("-")) {
      line++;
      newLeft--;
    }
  }
  return found;
}

/**
 * Each changed file's text before and after. `current` returns what a file contains now, which is `now`; where the diff
 * does not fit to that, the texts are only those of the diff. Undefined if the diff is cut or can't be read: show it as it
 * is.
 */
export async function sides(
  diff: string,
  now: Side,
  current: (path: string) => Promise<string | undefined>,
): Promise<Sides[] | undefined> {
  const files = parse(diff);
  if (!files) return undefined;
  return Promise.all(
    files.map(async (file) => {
      const text = await current(file.path);
      return { path: file.path, ...((text !== undefined && whole(file, text, now)) || parts(file)) };
    }),
  );
}

function nameIn(text: string, path: string | undefined): string | undefined {
  // Git ends a name that has a space with a tab.
  if (text.startsWith("--- ")) return /^--- a\/(.*?)\t?$/.exec(text)?.[1];
  if (text.startsWith("+++ ") && text !== "+++ /dev/null") return /^\+\+\+ b\/(.*?)\t?$/.exec(text)?.[1];
  return path;
}

function parse(diff: string): ChangedFile[] | undefined {
  const files: ChangedFile[] = [];
  let path: string | undefined;
  const rest = lines(diff);
  for (let at = 0; at < rest.length; at++) {
    const text = rest[at] as string;
    const header = HUNK.exec(text);
    if (!header) {
      path = nameIn(text, path);
      if (text.startsWith("+++ ")) {
        if (path === undefined) return undefined;
        files.push({ path, hunks: [] });
      } else if (!OTHER_HEADERS.test(text)) return undefined;
      continue;
    }
    const hunk = hunkAt(rest, at + 1, header);
    if (!hunk || files.length === 0) return undefined;
    files.at(-1)?.hunks.push(hunk.hunk);
    at = hunk.next - 1;
  }
  return files.length > 0 ? files : undefined;
}

/** What may stand between files: the headers of git, of which renames and binary files have no sides. */
const OTHER_HEADERS = /^(--- |diff --git |index |new file mode |deleted file mode |old mode |new mode )/;

function hunkAt(rest: string[], begin: number, header: RegExpExecArray): { hunk: Hunk; next: number } | undefined {
  const [before, after]: [string[], string[]] = [[], []];
  const oldCount = Number(header[2] ?? 1);
  const newCount = Number(header[4] ?? 1);
  let at = begin;
  while (before.length < oldCount || after.length < newCount || rest[at]?.startsWith("\\")) {
    const text = rest[at++];
    const mark = text?.[0];
    if (text === undefined || mark === undefined || !" +-\\".includes(mark)) return undefined;
    const shown = `${text.slice(1)}\n`;
    if (mark === "\\") unend(rest[at - 2]?.[0], before, after);
    if (mark === " " || mark === "-") before.push(shown);
    if (mark === " " || mark === "+") after.push(shown);
  }
  // An empty span is numbered by the line before it.
  const start = {
    before: Number(header[1]) - (oldCount > 0 ? 1 : 0),
    after: Number(header[3]) - (newCount > 0 ? 1 : 0),
  };
  return { hunk: { header: header[0], start, before, after }, next: at };
}

/** Takes the newline from the last line, of which the diff says that it has none. */
function unend(mark: string | undefined, before: string[], after: string[]): void {
  for (const side of mark === "-" ? [before] : mark === "+" ? [after] : [before, after]) {
    side.push((side.pop() ?? "").slice(0, -1));
  }
}

/** The whole texts, made from the one that the file has now by what each hunk has on the other side. */
function whole(file: ChangedFile, text: string, now: Side): Record<Side, string> | undefined {
  const other = now === "before" ? "after" : "before";
  const here = text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
  const there: string[] = [];
  let at = 0;
  for (const hunk of file.hunks) {
    const start = hunk.start[now];
    const end = start + hunk[now].length;
    if (start < at || here.slice(start, end).join("") !== hunk[now].join("")) return undefined;
    there.push(...here.slice(at, start), ...hunk[other]);
    at = end;
  }
  const made = [...there, ...here.slice(at)].join("");
  return now === "before" ? { before: text, after: made } : { before: made, after: text };
}

function parts(file: ChangedFile): Record<Side, string> {
  const side = (of: Side) =>
    file.hunks.map((hunk) => (file.hunks.length > 1 ? `${hunk.header}\n` : "") + hunk[of].join("")).join("");
  return { before: side("before"), after: side("after") };
}
