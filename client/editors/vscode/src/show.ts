/**
 * What a block looks like: Markdown, lines, folds and buttons, without HTML. Everything that a model, a tool or a file says passes
 * through `text` here; what is to be approved is shown complete and verbatim.
 */

import type {
  AssistantMessage,
  FileChange,
  Item,
  PlanEntry,
  Request,
  RequestResolved,
  ToolCall,
  TurnEnded,
  UserMessage,
} from "../../../typescript/src/index.js";
import { diffLines } from "./diffs.js";
import type { Around, Line, Shown, Tone } from "./messages.js";
import { DECISIONS, RESOLVED, decisions, hasDiff } from "./requests.js";
import type { Block, Session } from "./session.js";
import { label, lines, oneLine, sanitized, seconds, verbatim } from "./text.js";

/** Lines of a call's output; the newest. `tiller show --full` has all. */
const OUTPUT_LINES_MAX = 200;

/** Arguments that describe a call, the best first, until it has a title. */
const ARGUMENTS = ["command", "path", "pattern", "url", "query", "text", "prompt", "code", "id"];

const DELIVERY = { start: "", steer: " (steering)", queue: " (queued)" };

const PLAN_MARKS = { pending: "☐", in_progress: "▶", completed: "☑" };

type Look = Partial<Omit<Shown, "id" | "reverted">>;

/** A block as it looks now. */
export function show(block: Block): Shown {
  const nothing = { head: "", tone: "plain" as const, markdown: "", body: [], fold: "none" as const, buttons: [] };
  return { ...nothing, ...look(block), id: block.id, reverted: block.reverted > 0 };
}

/** What is shown around the blocks of a session. */
export function around(session: Session | undefined, connection: string, others: readonly string[]): Around {
  return {
    title: oneLine(session?.title ?? ""),
    status: session && session.status !== "idle" ? oneLine(`${session.status} ${session.statusCause}`) : "",
    running: session !== undefined && session.status !== "idle",
    others: others.length > 0 ? oneLine(`also: ${others.join(", ")}`) : "",
    queue: (session?.queue ?? []).map(({ id, delivery, text }) => ({
      id,
      text: `${delivery === "steer" ? "⇢" : "⧗"} ${oneLine(text)}`,
    })),
    connection: oneLine(connection),
  };
}

/** Model, context window and state of a session, for a status bar. */
export function statusLine(session: Session | undefined, connection: string): string {
  if (connection) return "tiller: reconnecting";
  if (!session) return "tiller";
  const model = session.context?.model ?? session.settings.model ?? "";
  const { contextTokens, context } = session;
  const used = context && contextTokens > 0 ? Math.round((100 * contextTokens) / context.context_window) : 0;
  const words = [model, used > 0 && Number.isFinite(used) ? `${used} %` : "", session.status];
  return `tiller: ${words.map(label).filter(Boolean).join(" · ")}`;
}

/** A changed file in one line. */
export function changeLine({ path, kind, added_lines, removed_lines }: FileChange): string {
  const counts = added_lines == null ? "" : ` +${added_lines} −${removed_lines ?? 0}`;
  return `${oneLine(path)} ${kind === "modified" ? "" : kind}${counts}`.replace("  ", " ");
}

function look({ content }: Block): Look {
  switch (content.kind) {
    case "item":
      return lookOfItem(content.item);
    case "request":
      return content.resolution
        ? lookOfResolved(content.request, content.resolution)
        : lookOfRequest(content.request);
    case "plan":
      return { body: content.plan.map(planLine) };
    case "note":
      return { body: toned(lines(sanitized(content.text)), content.tone) };
    case "turn":
      return lookOfTurnEnd(content.ended);
  }
}

function lookOfItem(item: Item): Look {
  switch (item.type) {
    case "user_message":
      return lookOfUser(item);
    case "assistant_message":
      return item.state === "discarded" ? {} : lookOfAnswer(item);
    case "reasoning":
      if (item.state === "discarded" || !item.text.trim()) return {};
      return folded("∴ reasoning", "dim", toned(lines(sanitized(item.text.trimEnd())), "dim"));
    case "tool_call":
      return item.discarded ? {} : lookOfCall(item);
    case "compaction":
      return folded("≡ history up to here was summarised", "dim", toned(lines(sanitized(item.summary)), "dim"));
    case "notice":
      return { head: `▪ ${oneLine(item.text)}`, tone: "dim" };
    case "patch":
      return { body: item.files.map((path) => ({ text: `± ${oneLine(path)}`, tone: "dim", place: { path, line: 1 } })) };
  }
}

function lookOfUser(item: UserMessage): Look {
  const files = (item.files ?? []).map((path) => ` @${oneLine(path)}`).join("");
  const images = item.images?.length ? ` (${item.images.length} attached)` : "";
  return { body: toned(lines(sanitized(item.text) + files + images + DELIVERY[item.delivery]), "user") };
}

function lookOfAnswer(item: AssistantMessage): Look {
  const interrupted = item.state === "interrupted" ? ["(interrupted)"] : [];
  const sources = (item.citations ?? []).map(({ title, url }) => `↗ ${oneLine(`${title ?? ""} ${url ?? ""}`)}`);
  return { markdown: sanitized(item.text).trimEnd(), body: toned([...interrupted, ...sources], "dim") };
}

/** A call: a line with its state, and in a fold its diff or output. Open are only diffs, and what failed. */
function lookOfCall(call: ToolCall): Look {
  const parameters = decoded(call.rewritten_arguments || call.arguments);
  const failed = call.state === "error" || Boolean(call.exit_status);
  const diff = call.diff ?? "";
  let output = call.output ?? "";
  if (diff) output = output.slice(output.search(/\n\n|$/)).trimStart(); // the problems that the edit caused
  const body = [...(diff ? diffBody(diff) : []), ...toned(newest(output), "code")];
  const tone = failed ? "error" : call.state === "completed" ? "done" : "dim";
  const isOpen = failed || Boolean(diff);
  return { head: callLine(call, parameters), tone, body, fold: body.length === 0 ? "none" : isOpen ? "open" : "closed" };
}

function newest(output: string): string[] {
  const rows = output ? lines(output) : [];
  const omitted = Math.max(0, rows.length - OUTPUT_LINES_MAX);
  const shown = rows.length > 0 ? sanitized(rows.slice(omitted).join("\n")).split("\n") : [];
  return omitted > 0 ? [`… ${omitted} lines: tiller show --full`, ...shown] : shown;
}

/** Name, subject and state of a call in one line. */
function callLine(call: ToolCall, parameters: Record<string, unknown>): string {
  const described = ARGUMENTS.map((name) => parameters[name]).find((value) => typeof value === "string");
  const ended = call.state === "completed" ? "ok" : (call.error_kind ?? call.state);
  const words = [
    "●",
    oneLine(call.name),
    oneLine(call.title || ((described as string | undefined) ?? "")),
    call.exit_status ? `exit ${call.exit_status}` : ended,
    call.duration_s == null ? "" : seconds(call.duration_s),
    call.sub_agent ? `(${oneLine(call.sub_agent.agent)}: ${call.sub_agent.steps ?? 0} steps)` : "",
  ];
  return words.filter(Boolean).join(" ");
}

/** Arguments as an object; empty while they are incomplete. */
function decoded(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function diffBody(diff: string): Line[] {
  return diffLines(diff).map(({ text, place }) => {
    const line = { text: sanitized(text), tone: diffTone(text) };
    return place ? { ...line, place } : line;
  });
}

function diffTone(text: string): Tone {
  return text.startsWith("+") ? "added" : text.startsWith("-") ? "removed" : "code";
}

function lookOfRequest(request: Request): Look {
  const title = row(request.title);
  const isNamed = (subject: string) => subject === request.detail || ` ${request.title}`.endsWith(` ${subject}`);
  const body: Line[] = (request.subjects ?? [])
    .filter((subject) => subject && !isNamed(subject))
    .map((subject) => ({ text: `· ${row(subject)}`, tone: "code" }));
  if (request.detail) {
    const detail = lines(verbatim(request.detail));
    const tone = request.kind === "question" ? ("plain" as const) : ("code" as const);
    body.push(...detail.map((text) => ({ text, tone: hasDiff(request) ? diffTone(text) : tone })));
  }
  if (request.also?.length) {
    const names = [request.permission ?? "", ...request.also].map(row).join(", ");
    body.unshift({ text: `! needs several permissions: ${names}`, tone: "warning" });
  }
  if (request.always?.length) {
    body.push({ text: `“always” allows ${row(request.permission ?? "")}: ${request.always.map(row).join(", ")}`, tone: "dim" });
  }
  if (request.always_here) {
    body.push({ text: `“always here” allows it in every session of ${row(request.always_here)}`, tone: "dim" });
  }
  body.push(...(request.choices ?? []).map((choice, at): Line => ({ text: `${at + 1}. ${row(choice)}`, tone: "plain" })));
  const buttons: Shown["buttons"] = decisions(request).map((act) => ({ label: DECISIONS[act], act }));
  if (hasDiff(request)) buttons.push({ label: "Diff", act: "diff" });
  return { head: `? ${title}`, tone: "asking", body, buttons };
}

function lookOfResolved(request: Request, resolved: RequestResolved): Look {
  const by = resolved.by ? ` by ${oneLine(resolved.by)}` : "";
  const said = resolved.text ? `: ${oneLine(resolved.text)}` : "";
  const text = `${RESOLVED[resolved.resolution]}${by}${said}`;
  return { head: `? ${row(request.title)}`, tone: "dim", body: [{ text, tone: "dim" }] };
}

function lookOfTurnEnd(ended: TurnEnded): Look {
  const tokens = (ended.usage.input_tokens ?? 0) + (ended.usage.output_tokens ?? 0);
  const words = [
    ended.outcome.replace("_", " "),
    seconds(ended.duration_s),
    tokens > 0 ? `${tokens} tokens` : "",
    ended.cost == null ? "" : `$${ended.cost.toFixed(4)}`,
    ended.queued ? `${ended.queued} inputs wait; the next message starts them` : "",
  ];
  const why = ended.error ? toned(lines(sanitized(ended.error.message)), "error") : [];
  const buttons: Shown["buttons"] = ended.files?.length ? [{ label: "Changes", act: "changes" }] : [];
  return { head: `── ${words.filter(Boolean).join(" · ")}`, tone: "dim", body: why, buttons };
}

function planLine({ text, state }: PlanEntry): Line {
  return { text: `${PLAN_MARKS[state]} ${oneLine(text)}`, tone: "dim" };
}

/** Text to approve in one line. */
function row(text: string): string {
  return verbatim(text).replaceAll("\n", "␊");
}

function toned(texts: string[], tone: Tone): Line[] {
  return texts.map((text) => ({ text, tone }));
}

function folded(head: string, tone: Tone, body: Line[]): Look {
  return { head, tone, body, fold: "closed" };
}
