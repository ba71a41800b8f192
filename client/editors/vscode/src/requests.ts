/** Requests of the agent: the decisions that one takes, in words. */

import type { Answer, Request } from "../../../typescript/src/index.js";

export type Decision = Answer["decision"];

/** What a button says. */
export const DECISIONS: Record<Decision, string> = {
  once: "Allow once",
  always: "Always in this session",
  always_here: "Always here",
  answer: "Answer …",
  reject: "Reject …",
};

/** What became of a request. */
export const RESOLVED: Record<Decision | "cancelled", string> = {
  once: "✓ allowed once",
  always: "✓ allowed for the session",
  always_here: "✓ allowed always here",
  answer: "✓ answered",
  reject: "✗ rejected",
  cancelled: "· withdrawn",
};

/** The decisions that a request takes, the usual one first. */
export function decisions(request: Request): Decision[] {
  if (request.kind === "question") return ["answer", "reject"];
  if (!request.always?.length) return ["once", "reject"];
  return request.always_here
    ? ["once", "always", "always_here", "reject"]
    : ["once", "always", "reject"];
}

/** Whether what is asked can be shown as a diff. */
export function hasDiff(request: Request): boolean {
  return request.detail_kind === "diff" && Boolean(request.detail);
}
