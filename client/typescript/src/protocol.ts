/** The protocol of tiller; made by `tiller schema --typescript`. */

export const PROTOCOL_VERSION = 1;

/** An op: what a frontend asks of the daemon. */
export type AnyOp = Submission["op"];
/** What an accepted op may return. */
export type AnyResult = NonNullable<Accepted["result"]>;
/** The answer to a submission. */
export type AnyAnswer = Accepted | Rejected;
/** What an event reports. */
export type AnyBody = Event["body"];
/** An entry of a session's history. */
export type Item = NonNullable<Snapshot["items"]>[number];

/** An op as a frontend sends it. */
export interface Submission {
  /** Chosen by the frontend. The same id sent again gets the same answer. */
  id: string;
  /** What to do. */
  op: Hello | SessionCreate | SessionList | SessionSearch | InputHistory | SessionGet | SessionDiff | SessionConfigure | SessionFork | SessionArchive | SessionDelete | SessionLend | LentFile | Replay | UserInput | QueueEdit | TurnContinue | Interrupt | Answer | Compact | Revert | Unrevert | Shell | Catalog | Project | McpLogin | RulesList | RuleRevoke | DaemonStatus | Shutdown;
  /** The frontend's name; shown with its inputs and answers. */
  client?: string;
  /** Content of the token file in the runtime directory. */
  token?: string;
}

/** Introduces a frontend. Answered by `HelloResult`, or rejected `unsupported_protocol`. */
export interface Hello {
  type: "hello";
  /** The version that the frontend speaks. */
  protocol_version: number;
  /** The frontend's name, for display. */
  name: string;
}

/** Creates a session bound to a directory. Answered by `Created`. */
export interface SessionCreate {
  type: "session_create";
  /** Absolute path of an existing, readable directory. */
  workspace: string;
  /** Short for `settings.agent`, which it overrides. */
  agent?: string | null;
  /** Short for `settings.model`, which it overrides. */
  model?: string | null;
  /** Settings to begin with. */
  settings?: Settings;
}

/** Settings of a session. An absent field leaves the choice to the agent or the configuration. */
export interface Settings {
  /** Name of an agent. */
  agent?: string | null;
  /** `provider/model`. */
  model?: string | null;
  /** Name of a variant of the model; empty: none, whatever is configured. */
  variant?: string | null;
  /** If no rule decides about a call: `ask` the user, `always` allow, or `never`: deny. */
  approve?: "always" | "ask" | "never" | null;
  /** What commands may do: only read, write in the workspace, or whatever the user may. */
  sandbox?: "full_access" | "read_only" | "workspace_write" | null;
  /** How queued input is taken: one per turn, or all at once. */
  follow_ups?: "all" | "one_at_a_time" | null;
  /** Maximum number of model requests in one turn. */
  max_steps?: number | null;
  /** Limit for each turn. */
  turn_budget?: Budget | null;
  /** Limit for the whole session. */
  session_budget?: Budget | null;
  /** Rules of the session; stronger than configured ones. */
  permissions?: Array<Rule> | null;
  /** Names of the tools to offer, or patterns for MCP tools; absent: the agent's, or all. */
  tools?: Array<string> | null;
}

/** Limits on what may be spent; absent means no limit. The step that would use up a budget is the last one, and gets no tools. */
export interface Budget {
  /** Model requests. */
  steps?: number | null;
  /** Tokens in and out. */
  tokens?: number | null;
  /** US dollars; requests without a known price don't count. */
  cost?: number | null;
  /** Seconds of work. */
  time_s?: number | null;
}

/** A permission rule; the last rule that matches wins. A granted rule is stronger than all others, except those that deny. */
export interface Rule {
  /** Such as `bash`, or a glob that matches several. */
  permission: string;
  /** A glob over the subject, such as a command or a path. */
  pattern: string;
  action: "allow" | "ask" | "deny";
  /** Whether an answer such as `always` made it. It never overrides a denial. */
  granted?: boolean;
}

/** Lists sessions, newest activity first. Answered by `SessionListResult`. Sub-agents' sessions are left out unless `owner_id` or `sub_agents` asks for them. */
export interface SessionList {
  type: "session_list";
  /** Only sessions of this directory; absent: all. */
  workspace?: string | null;
  /** The archived sessions instead of the others. */
  archived?: boolean;
  /** Maximum number of sessions in the answer. */
  limit?: number;
  /** `next` of the previous page; absent: the first page. */
  after?: string | null;
  /** Only the sub-agents that work for this session. */
  owner_id?: string | null;
  /** Include the sessions of all sub-agents. */
  sub_agents?: boolean;
}

/** Finds sessions by what people read in them. Answered by `SessionSearchResult`. It searches titles, inputs, answers and names of changed files, but not the output of tools or the sessions of sub-agents. What a revert has undone is still found. Case and accents make no difference. Rejected `empty_input` if the query contains no word. */
export interface SessionSearch {
  type: "session_search";
  /** Words that must all occur in the same text. Words in quotes are a phrase; `*` at the end of a word stands for any ending. No other character is special. */
  query: string;
  /** Only sessions of this directory; absent: all. */
  workspace?: string | null;
  /** Include archived sessions. */
  archived?: boolean;
  /** Maximum number of sessions in the answer. */
  limit?: number;
  /** `next` of the previous page; absent: the first page. */
  after?: string | null;
}

/** Lists what the user wrote in all sessions, newest first. Answered by `InputHistoryResult`. Of equal inputs only the newest is listed. The prompts of sub-agents are left out. */
export interface InputHistory {
  type: "input_history";
  /** Only sessions of this directory; absent: all. */
  workspace?: string | null;
  /** Maximum number of inputs in the answer. */
  limit?: number;
  /** `next` of the previous page; absent: the first page. */
  after?: string | null;
}

/** Returns one session as a snapshot at a `seq`. Answered by `SessionResult`. */
export interface SessionGet {
  type: "session_get";
  /** The session. */
  session_id: string;
}

/** Returns what a session changed in files. Answered by `SessionDiffResult`. */
export interface SessionDiff {
  type: "session_diff";
  /** The session. */
  session_id: string;
  /** Only this turn; absent: all turns. */
  turn_id?: string | null;
  /** A step of the turn, from 1; absent: the whole turn. */
  step?: number | null;
}

/** Changes settings from the next turn on, or the title. */
export interface SessionConfigure {
  type: "session_configure";
  /** The session. */
  session_id: string;
  /** The new settings; absent fields stay as they are. */
  settings?: Settings;
  /** The new title, one line; absent: as it is. */
  title?: string | null;
  /** Names of settings to take back, before `settings` apply: the default counts again. */
  clear?: Array<string>;
}

/** Creates a session that shares this one's log up to an event. Answered by `Created`. */
export interface SessionFork {
  type: "session_fork";
  /** The session. */
  session_id: string;
  /** `seq` of the last shared event; absent: the latest. */
  at?: number | null;
}

/** Archives a session, or takes it out of the archive. */
export interface SessionArchive {
  type: "session_archive";
  /** The session. */
  session_id: string;
  /** False takes it out of the archive. */
  archived?: boolean;
}

/** Removes a session, its log and its files for good. Rejected `busy` while a turn runs. */
export interface SessionDelete {
  type: "session_delete";
  /** The session. */
  session_id: string;
}

/** Lends a session what a frontend has, or ends the loan if the fields are absent. Not an event and not in the log, since it may hold secrets. A loan ends 10 minutes after it was last sent, or with the daemon, so send it again every few minutes and before each input. What a running turn uses stays until the turn ends. */
export interface SessionLend {
  type: "session_lend";
  /** The session. */
  session_id: string;
  /** Chosen by the frontend; each lender has one loan per session. */
  lender: string;
  /** MCP servers for the turns of this session and its sub-agents, beside the configured ones. A configured server of the same name takes precedence. */
  mcp_servers?: Array<LentServer>;
  /** Whether the frontend knows unsaved files; it then gets `FileWanted` questions. */
  reads_files?: boolean;
}

/** An MCP server: a program, or an address of the streamable HTTP transport. */
export interface LentServer {
  /** 1 to 32 letters, digits, `-` and `_`. */
  name: string;
  /** Program and arguments; empty if `url` is set. */
  command?: Array<string>;
  /** Variables of the program; may hold secrets. */
  env?: Record<string, string>;
  /** Address of the server; absent if `command` is set. */
  url?: string | null;
  /** Sent with each request; may hold secrets. */
  headers?: Record<string, string>;
}

/** Answers a `FileWanted`. Not in the log; an answer that comes too late is dropped. */
export interface LentFile {
  type: "lent_file";
  question_id: string;
  /** The whole text in the editor; absent if the frontend can't tell. */
  text?: string | null;
}

/** Returns events from the log, oldest first. Answered by `ReplayResult`. */
export interface Replay {
  type: "replay";
  /** The session. */
  session_id: string;
  /** Return events with a higher `seq` than this. */
  after?: number;
  /** Maximum number of events in the answer; `replay_bytes_max` limits it as well. */
  limit?: number;
  /** For a frontend that has the session open: an id of its choice, the same each time. It then counts as a follower for 20 s, under the name in `client`, so it should ask at least every 10 s. */
  follower?: string | null;
}

/** Input of the user: text, images, files, or any of them. Answered by `Started`, `Steered` or `Queued`. If an image or file can't be used, the input is rejected as a whole. `no_active_turn` and `overloaded` return the input in `data`. */
export interface UserInput {
  type: "user_input";
  /** The session. */
  session_id: string;
  /** What the user wrote; may be empty if something is attached. */
  text?: string;
  /** Their content tells the format; large ones are scaled down. */
  images?: Array<Image>;
  /** Paths, absolute or relative to the workspace. The model gets the paths, not the content, and reads what it needs. */
  files?: Array<string>;
  /** `start` begins a turn with this input, `steer` joins the running one, `queue` waits until it ends; `auto` steers if a turn is running, and otherwise starts one. If no turn is running and older input waits, `auto` and `queue` start a turn with the older input and queue this one behind it. */
  delivery?: "auto" | "queue" | "start" | "steer";
  /** Reject the input unless this turn is running; absent: no check. */
  expected_turn_id?: string | null;
  /** Choices for the turn that this input starts; no effect on others. */
  overrides?: TurnOverrides;
  /** Add the message to history without starting a turn; the answer has no result. A running turn is steered with it. Can't be combined with `queue`. */
  no_reply?: boolean;
  /** Added to the system prompt of the turn that this input starts, if any. */
  system?: string;
  /** Text that comes with the input, such as the output of a program. The model gets it after the text, marked as context; commands and sub-agents in it are not called. */
  context?: string;
}

/** An image, given by the user or shown by a tool, or a PDF document that the user attached. */
export interface Image {
  /** Such as `image/png`; ignored in input. */
  media_type: string;
  /** The encoded file; base64 in JSON. */
  data: string;
  /** Text of a document, for models that take no documents; ignored in input. */
  text?: string;
  /** Pages of a document; ignored in input. */
  pages?: number;
}

/** Choices for the turn that one input starts. An absent field leaves the choice to the session. */
export interface TurnOverrides {
  /** Name of an agent. */
  agent?: string | null;
  /** `provider/model`. */
  model?: string | null;
  /** Name of a variant of the model; empty: none, whatever is configured. */
  variant?: string | null;
  /** If no rule decides about a call: `ask` the user, `always` allow, or `never`: deny. */
  approve?: "always" | "ask" | "never" | null;
  /** What commands may do: only read, write in the workspace, or whatever the user may. */
  sandbox?: "full_access" | "read_only" | "workspace_write" | null;
  /** Maximum number of model requests in one turn. */
  max_steps?: number | null;
  /** Limit for each turn. */
  turn_budget?: Budget | null;
  /** Names of the tools to offer, or patterns for MCP tools; absent: the agent's, or all. */
  tools?: Array<string> | null;
  /** JSON Schema of the final message. */
  output_schema?: Record<string, unknown> | null;
  /** Fields of the provider's own request; they override configured ones. */
  options?: Record<string, unknown> | null;
}

/** Changes one queued input. Answered by `Started` if it began a turn. */
export interface QueueEdit {
  type: "queue_edit";
  /** The session. */
  session_id: string;
  /** The queued input. */
  input_id: string;
  /** `edit` replaces the text, `remove` drops the input, `promote` steers the running turn with it, or starts a turn with it if none runs, `move` changes its position. */
  action: "edit" | "move" | "promote" | "remove";
  /** The new text, for `edit`. */
  text?: string;
  /** The new position, for `move`; 0 is next. */
  position?: number;
}

/** Goes on without a new message. Answered by `Started`, or rejected `busy`. If inputs wait, a turn starts with the first of them, and the others follow in order. Otherwise a turn goes on from the end of history: after a failure, an interrupt or a limit, or where a revert or a fork has cut a turn short. Rejected `empty_input` if the model has answered everything. */
export interface TurnContinue {
  type: "turn_continue";
  /** The session. */
  session_id: string;
  /** Choices for the turn, on top of those of a turn that it goes on from. */
  overrides?: TurnOverrides;
}

/** Cancels the running turn at once, or ends a background command. */
export interface Interrupt {
  type: "interrupt";
  /** The session. */
  session_id: string;
  /** Only if this turn is running; absent: any. */
  turn_id?: string | null;
  /** End this background command or sub-agent instead; the turn goes on. */
  background_id?: string | null;
}

/** Resolves an open request. */
export interface Answer {
  type: "answer";
  /** The request. */
  request_id: string;
  /** `once` and `always` approve, `reject` refuses, `answer` replies to a question. `reject` ends the turn, unless `text` gives a reason: then only this call is refused. `always` also allows the request's `always` patterns for the rest of the session, `always_here` for every session in the request's `always_here` directory. */
  decision: "always" | "always_here" | "answer" | "once" | "reject";
  /** The reply, for `answer`; for `reject` a reason, which is the call's result. */
  text?: string;
}

/** Summarises history now. Answered by `Started`, or rejected `busy`. It runs as a turn without a step. If history is too short, the turn completes with the warning `nothing_to_compact`; if no summary can be made, it fails and its error says why. */
export interface Compact {
  type: "compact";
  /** The session. */
  session_id: string;
}

/** Puts files and history back to before a turn, or before one of its steps. A file that was changed by anything else since then stays as it is. Answered by `RevertResult`. */
export interface Revert {
  type: "revert";
  /** The session. */
  session_id: string;
  /** The turn to undo, with everything after it. */
  turn_id: string;
  /** Undo this step of the turn and all later ones; absent: the whole turn. */
  step?: number | null;
}

/** Undoes the last revert, as long as no turn has begun since. Answered by `RevertResult`. */
export interface Unrevert {
  type: "unrevert";
  /** The session. */
  session_id: string;
}

/** Runs the user's own command in the workspace; its output enters history. It runs as a turn without a step whose only item is a call of `bash` with `by_user`. No permission rule applies. It can be interrupted but not steered. Answered by `Started`, or rejected `busy`. */
export interface Shell {
  type: "shell";
  /** The session. */
  session_id: string;
  /** A command line for the shell. */
  command: string;
}

/** Lists models, agents, tools, commands and servers. Answered by `CatalogResult`. */
export interface Catalog {
  type: "catalog";
  /** Include what this directory defines; absent: only the user's own. */
  workspace?: string | null;
  /** Start every MCP server that is not up, and wait until all have started. */
  start_servers?: boolean;
  /** Ask the providers which models they have, which may take some seconds. */
  ask?: boolean;
  /** Look for providers that could be configured. */
  offers?: boolean;
  /** Include the MCP servers that frontends lend to this session. */
  session_id?: string | null;
}

/** Shows what a workspace's `.tiller` defines, or changes its trust. Answered by `ProjectResult`. */
export interface Project {
  type: "project";
  /** Absolute path of the directory. */
  workspace: string;
  /** True: trust the content that has this `digest`, from the next turn on. False: trust nothing. Absent: change nothing. */
  trust?: boolean | null;
  /** `digest` of the `ProjectResult` that the user agreed to. */
  digest?: string;
}

/** Logs in to an MCP server, or out. Answered by `McpLoginResult`, or rejected if it failed. */
export interface McpLogin {
  type: "mcp_login";
  /** Its name in the configuration. */
  server: string;
  /** `begin` returns the address to open. `check` says whether the browser has come back; `finish` takes the address of its last page, if that can't reach the daemon. `cancel` gives up. `logout` forgets the login. */
  action?: "begin" | "cancel" | "check" | "finish" | "logout";
  /** For `finish`: the address to which the browser was sent, or its `code`. */
  redirect?: string;
}

/** Lists the lasting rules that `always_here` made. Answered by `RulesResult`. */
export interface RulesList {
  type: "rules_list";
  /** Only those of this directory; absent: all. */
  workspace?: string | null;
  /** Only those of this session's directory, and the session's own rules. */
  session_id?: string | null;
}

/** Revokes one rule, by its id: `session_configure` could only replace a session's whole list. Running turns ask again at once. Rejected `not_found` if there is no such rule. */
export interface RuleRevoke {
  type: "rule_revoke";
  /** `id` of the `RuleSummary`. */
  rule_id: string;
  /** The session that the rule belongs to; absent for a lasting rule. */
  session_id?: string | null;
}

/** Returns figures about the process. Answered by `DaemonStatusResult`. */
export interface DaemonStatus {
  type: "daemon_status";
}

/** Ends the daemon. */
export interface Shutdown {
  type: "shutdown";
  /** `drain` lets turns finish first, `now` interrupts them. */
  mode?: "drain" | "now";
}

/** The op took effect and is in the log. */
export interface Accepted {
  type: "accepted";
  /** The submission that this answers. */
  submission_id: string;
  /** Absent for ops without a result. */
  result?: HelloResult | Created | SessionListResult | SessionSearchResult | InputHistoryResult | SessionResult | ReplayResult | SessionDiffResult | RevertResult | Started | Steered | Queued | CatalogResult | ProjectResult | McpLoginResult | RulesResult | DaemonStatusResult | null;
}

/** Identifies the daemon, and says what a restart may change. No key is ever sent. */
export interface HelloResult {
  type: "hello";
  /** Such as `1.2.0`. */
  daemon_version: string;
  /** The version that the daemon speaks. */
  protocol_version: number;
  /** Changes when the daemon has a new log; earlier `seq`s are void. */
  log_id: string;
  /** Sizes that the daemon accepts. */
  limits: Limits;
  /** Environment variables for providers' keys that the daemon lacks: those named in the configuration, and well-known ones if no model is configured. */
  missing_keys?: Array<string>;
  /** The daemon's program has been replaced since the daemon was started. */
  replaced?: boolean;
  /** No model is known, so that new sessions and turns first look for a model server on the daemon's machine. */
  searches_model?: boolean;
}

/** Limits of this daemon, in bytes. */
export interface Limits {
  /** Largest message, either way. */
  message_bytes_max: number;
  /** A `replay` answer stops before it exceeds this. */
  replay_bytes_max: number;
  /** Largest input: text and images together. */
  input_bytes_max: number;
}

/** The new session, after `session_create` or `session_fork`. */
export interface Created {
  type: "created";
  /** The new session. */
  session_id: string;
}

/** A page of sessions. */
export interface SessionListResult {
  type: "session_list";
  /** Newest activity first. */
  sessions: Array<SessionSummary>;
  /** `after` for the next page; absent if this is the last. */
  next?: string | null;
  /** Why sessions may be missing, in whole sentences. */
  problems?: Array<string>;
}

/** One entry of a list of sessions. */
export interface SessionSummary {
  /** The session. */
  session_id: string;
  /** Absolute path. */
  workspace: string;
  /** Unix seconds. */
  created_at: number;
  /** Unix seconds of the last event. */
  updated_at: number;
  /** `seq` of the last event. */
  head: number;
  /** What it is doing now. */
  status?: "busy" | "idle" | "retry" | "waiting";
  /** One line; empty if it has none yet. */
  title?: string;
  /** Whether it is archived. */
  archived?: boolean;
  /** Number of turns so far. */
  turns?: number;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
  /** Open requests, oldest first. */
  requests?: Array<Request>;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: number of turns shared with its parent. */
  parent_turns?: number;
  /** As in `snapshot`. */
  context_tokens?: number;
  /** As in `snapshot`. */
  context_window?: number;
  /** As in `snapshot`. */
  branch?: string;
}

/** A question to the user; answered once, by any frontend. */
export interface Request {
  /** `request_id` in ops and events. */
  id: string;
  /** `approval`: may this call run? `doom_loop`: a call repeats itself, go on? `question`: the model asks. */
  kind: "approval" | "doom_loop" | "question";
  /** Summary in one line. */
  title: string;
  /** The tool call that waits, if any. */
  item_id?: string;
  /** The permission that the call needs, such as `bash`. */
  permission?: string;
  /** What permission rules are matched against: commands, paths, … */
  subjects?: Array<string>;
  /** Patterns that the answer `always` would allow for the rest of the session. */
  always?: Array<string>;
  /** Directory in which `always_here` would allow the same patterns for every session, as lasting rules; empty if `always_here` is not possible. */
  always_here?: string;
  /** All that is asked about; empty if the title says all. */
  detail?: string;
  /** Suggested replies to a `question`. */
  choices?: Array<string>;
  /** Kind of content in `detail`; never inferred from the text. */
  detail_kind?: "command" | "diff" | "text";
}

/** A page of the sessions that match a query. */
export interface SessionSearchResult {
  type: "session_search";
  /** Newest activity first. */
  found: Array<FoundSession>;
  /** `after` for the next page; absent if this is the last. */
  next?: string | null;
  /** Sessions that are not indexed yet, as after an upgrade; their text may be missing. */
  not_indexed?: number;
}

/** A session with texts that match a query. */
export interface FoundSession {
  /** The session as in lists. */
  session: SessionSummary;
  /** Up to three: the title first, then the newest. */
  texts: Array<FoundText>;
}

/** A text of a session that matches a query. */
export interface FoundText {
  /** `files`: names of files that a step changed, separated by blanks. */
  kind: "answer" | "files" | "input" | "title";
  /** An excerpt in one line, cut into pieces that alternate: text outside of a match, then a match, and so on. The first may be empty. */
  pieces: Array<string>;
  /** Unix seconds; of a title: when the session was created. */
  time: number;
  /** The event with the text; 0 for a title. */
  seq?: number;
  /** The turn, if it belongs to one. */
  turn_id?: string;
  /** The item; empty for a title. */
  item_id?: string;
}

/** A page of the user's inputs. */
export interface InputHistoryResult {
  type: "input_history";
  /** Newest first. */
  inputs: Array<PastInput>;
  /** `after` for the next page; absent if this is the last. */
  next?: string | null;
  /** Sessions that are not indexed yet, as after an upgrade; their text may be missing. */
  not_indexed?: number;
}

/** Something that the user wrote. */
export interface PastInput {
  /** What the user wrote. */
  text: string;
  /** Unix seconds. */
  time: number;
  /** The session. */
  session_id: string;
}

/** A session as it is now. */
export interface SessionResult {
  type: "session";
  /** For later events: `replay` after `snapshot.seq`. */
  snapshot: Snapshot;
}

/** A session at `seq`. Mutable: `fold` applies the next event in place. */
export interface Snapshot {
  /** The session. */
  session_id: string;
  /** The last event that is included; 0: none. */
  seq?: number;
  /** Absolute path. */
  workspace?: string;
  /** Settings of the next turn. */
  settings?: Settings;
  /** One line; empty if it has none yet. */
  title?: string;
  /** Whether it is archived. */
  archived?: boolean;
  /** Unix seconds. */
  created_at?: number;
  /** Unix seconds of the last event. */
  updated_at?: number;
  /** What it is doing now. */
  status?: "busy" | "idle" | "retry" | "waiting";
  /** History, in the order in which items started. */
  items?: Array<UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch>;
  /** Ids of items that have not completed. */
  open_items?: Array<string>;
  /** Open requests, oldest first. */
  requests?: Array<Request>;
  /** Queued inputs, next one first. */
  queue?: Array<QueuedInput>;
  /** The model's plan. */
  plan?: Array<PlanEntry>;
  /** Background commands: running ones, and the latest that ended. */
  background?: Array<BackgroundCommand>;
  /** Ids of calls whose output is no longer sent. */
  pruned?: Array<string>;
  /** Where turns and steps began, oldest first. */
  marks?: Array<Mark>;
  /** Reverts since the last turn, which can be undone; latest last. */
  reverted?: Array<Reverted>;
  /** Tokens of the first `context_items` items, as counted by the provider; 0 if there is no count since history got shorter. */
  context_tokens?: number;
  /** Number of items that `context_tokens` covers. */
  context_items?: number;
  /** Context window of the latest turn's model, in tokens; 0: there was no turn. */
  context_window?: number;
  /** From the latest `turn_ended` that has one. */
  branch?: string;
  /** The running turn, if any. */
  turn?: OpenTurn | null;
  /** How the latest turn of the model ended; absent before the first, and after a revert. */
  last_outcome?: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached" | null;
  /** Number of turns so far. */
  turns?: number;
  /** Model requests of all turns, without sub-agents. */
  steps?: number;
  /** Tokens of all turns, with titles, summaries and sub-agents. */
  usage?: Usage;
  /** US dollars for `usage`, as far as prices are known; absent: none is known. */
  cost?: number | null;
  /** Requests not included in `cost`, without sub-agents. */
  unpriced?: number;
  /** Seconds of all turns that have ended. */
  worked_s?: number;
  /** Model requests of sub-agents. */
  delegated_steps?: number;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: number of turns shared with its parent. */
  parent_turns?: number;
  /** For a sub-agent: the session that it works for. */
  owner_id?: string | null;
  /** For a sub-agent: the call that started it. */
  owner_item_id?: string | null;
}

/** The user's input: at the start of a turn, as steering, or as a follow-up. */
export interface UserMessage {
  type: "user_message";
  /** Id of the item. */
  id: string;
  /** What the user wrote. */
  text: string;
  /** Whether it started a turn, steered one, or came from the queue. */
  delivery: "queue" | "start" | "steer";
  /** Images and PDF documents that the user attached. */
  images?: Array<Image>;
  /** Paths of files that the user pointed to. */
  files?: Array<string>;
  /** Name of the frontend that sent the input; empty if unknown. */
  client?: string;
}

/** Text from the model. */
export interface AssistantMessage {
  type: "assistant_message";
  /** Id of the item. */
  id: string;
  /** The text so far; whole in `item_completed`. */
  text: string;
  /** `discarded`: not part of the answer, as the request was made again; ignore it. */
  state: "completed" | "discarded" | "interrupted" | "streaming";
  /** Sources of the text, in order; only in `item_completed`. */
  citations?: Array<Citation>;
}

/** A source that the model cites. */
export interface Citation {
  /** Address of the source; empty for a file. */
  url?: string;
  /** Title of the page, or name of the file. */
  title?: string;
  /** The passage of the source; empty if the provider sends none. */
  text?: string;
}

/** The model's reasoning. */
export interface Reasoning {
  type: "reasoning";
  /** Id of the item. */
  id: string;
  /** Readable text; empty if the provider sends none. */
  text: string;
  /** `discarded`: not part of the answer, as the request was made again; ignore it. */
  state: "completed" | "discarded" | "interrupted" | "streaming";
  /** Data that the provider needs back unchanged; meaningless to others. */
  opaque?: string;
}

/** One call of a tool and, once it has ended, its result. */
export interface ToolCall {
  type: "tool_call";
  /** Id of the item. */
  id: string;
  /** The provider's id of the call. */
  call_id: string;
  /** Name of the tool. */
  name: string;
  /** JSON text, exactly as the model wrote it; may be invalid. */
  arguments: string;
  /** `completed` and `error` are final. */
  state: "completed" | "error" | "pending" | "running";
  /** Whether the call may change anything. */
  effect?: "read" | "write";
  /** One line about the call; empty until it is known. */
  title?: string;
  /** The result as the model gets it; may be truncated. */
  output?: string;
  /** Present exactly when `state` is `error`. `invalid`: bad arguments. `denied`: no permission. `skipped`: never began. `aborted`: interrupted. `lost`: the daemon died during the call. */
  error_kind?: "aborted" | "denied" | "failed" | "invalid" | "lost" | "skipped" | null;
  /** Images in the result. */
  images?: Array<Image>;
  /** Unified diff of an edit. */
  diff?: string;
  /** File with the whole output, if `output` is truncated. */
  spill_path?: string;
  /** For a command that ended; absent for other tools and after a timeout. */
  exit_status?: number | null;
  /** Unix seconds when the call began to run; absent before. */
  started_at?: number | null;
  /** Seconds; absent until it has ended, or if it is lost. */
  duration_s?: number | null;
  /** The response failed and was retried; this call is not part of history. */
  discarded?: boolean;
  /** Number of the session's model request that made the call, from 0. Calls of one response share it, and go back to the model as one message. */
  ordinal?: number;
  /** The user made the call: `bash` by the op `shell`, or `task` by input for a sub-agent. */
  by_user?: boolean;
  /** The provider ran the call, within its response; `output` is for people, bounded. */
  by_provider?: boolean;
  /** The session that does the work of a `task` call. */
  sub_agent?: SubAgent | null;
  /** JSON text of the arguments that a hook put in place of `arguments`, if one did. */
  rewritten_arguments?: string;
  /** Why it may run; empty if it has not begun, needs no permission, or is the user's own. */
  allowed?: Array<Allowed>;
}

/** The session that a call of `task` started, and what it has spent for that call so far. */
export interface SubAgent {
  /** The sub-agent's session. */
  session_id: string;
  /** Name of the agent. */
  agent: string;
  /** Model requests so far. */
  steps?: number;
  /** Tokens so far. */
  usage?: Usage;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
}

/** Tokens as the provider counted them; all 0 if it did not. */
export interface Usage {
  /** Tokens sent, cached ones included. */
  input_tokens?: number;
  /** Part of `input_tokens`: read from the cache. */
  cached_input_tokens?: number;
  /** Tokens received, reasoning included. */
  output_tokens?: number;
  /** Part of `output_tokens`: reasoning. */
  reasoning_tokens?: number;
  /** Part of `input_tokens`: written to the cache. */
  cache_write_tokens?: number;
}

/** Why a call may run, or one of the reasons if it needs several permissions. */
export interface Allowed {
  /** `rule`: a configured or built-in rule. `grant`: a rule of the session, such as `always` adds. `lasting`: a rule that `always_here` made. `reading`: the call seems only to read, and can't write where it runs. `sandbox`: nothing that the call can do in the sandbox needs approval. `approve`: the setting is `always`. `user`: the answer to a request. */
  by: "approve" | "grant" | "lasting" | "reading" | "rule" | "sandbox" | "user";
  /** Sentences for people. */
  reason: string;
  /** The permission, such as `bash`. */
  permission?: string;
  /** Its subject: a command, a path, …; the first of several. */
  subject?: string;
  /** The rule that decided, if one did. */
  rule?: Rule | null;
}

/** A summary that replaces every item up to and including `replaces_upto`. */
export interface Compaction {
  type: "compaction";
  /** Id of the item. */
  id: string;
  /** The text that the model gets instead of those items. */
  summary: string;
  /** The last item that the summary replaces. */
  replaces_upto: string;
  /** User messages that are still sent verbatim, before the summary. */
  kept?: Array<string>;
}

/** Something the daemon tells the model, such as that the last turn was interrupted. */
export interface Notice {
  type: "notice";
  /** Id of the item. */
  id: string;
  /** What happened, for programs. */
  code: string;
  /** The sentence that the model gets. */
  text: string;
}

/** Files that one step changed. Without trees it is not known what the step changed. */
export interface Patch {
  type: "patch";
  /** Id of the item. */
  id: string;
  /** Paths relative to the workspace. */
  files: Array<string>;
  /** Git tree before the step; empty if unknown. */
  tree_before?: string;
  /** Git tree after the step; empty if unknown. */
  tree_after?: string;
  /** The same files, with details. */
  changes?: Array<FileChange>;
  /** Number of changed files that are not listed. */
  more?: number;
  /** Only differences in these places belong to the patch; empty: all do. */
  within?: Array<string>;
  /** Differences in these places belong to sub-agents in the background. */
  without?: Array<string>;
}

/** A file that was changed. */
export interface FileChange {
  /** Relative to the workspace. */
  path: string;
  /** What happened to it. */
  kind: "added" | "modified" | "removed";
  /** Absent for a file that is not text. */
  added_lines?: number | null;
  /** Absent for a file that is not text. */
  removed_lines?: number | null;
}

/** Input that was accepted and is not in history yet: steering on its way, or a follow-up. */
export interface QueuedInput {
  /** `input_id` in ops and answers. */
  id: string;
  /** What the user wrote. */
  text: string;
  /** `steer` goes to the running turn before its next step, `queue` waits. */
  delivery: "queue" | "start" | "steer";
  /** Images and PDF documents that the user attached. */
  images?: Array<Image>;
  /** Paths of files that the user pointed to. */
  files?: Array<string>;
  /** Name of the frontend that sent the input; empty if unknown. */
  client?: string;
  /** Agents that work on this as sub-agents before the model gets it. */
  sub_agents?: Array<string>;
}

/** One line of the plan. */
export interface PlanEntry {
  /** What is to be done. */
  text: string;
  /** State of the entry. */
  state: "completed" | "in_progress" | "pending";
}

/** A command that outlives its tool call, or a sub-agent that does. */
export interface BackgroundCommand {
  /** `background_id` in `interrupt`. */
  id: string;
  /** The command line; for a sub-agent, its agent and task. */
  command: string;
  /** `lost`: the daemon died while it ran; its processes were ended. */
  state: "exited" | "killed" | "lost" | "running";
  /** Unix seconds. */
  started_at: number;
  /** The tool call that started it. */
  item_id?: string;
  /** File that gets the output. */
  output_path?: string;
  /** Unix seconds; absent while it runs. */
  ended_at?: number | null;
  /** Absent unless it exited on its own. For a sub-agent: 0 if it completed, else 1. */
  exit_status?: number | null;
  /** Present for a sub-agent: its session, and what it has spent. */
  sub_agent?: SubAgent | null;
}

/** A point to which history can be reverted: before a turn, or before one of its steps. */
export interface Mark {
  /** The turn. */
  turn_id: string;
  /** The last event before this point. */
  seq: number;
  /** Number of items before this point. */
  items: number;
  /** 0: before the turn, else before this step. */
  step?: number;
  /** The agent of the turn. */
  agent?: string;
  /** Whether that agent could only read. */
  read_only?: boolean;
  /** Unix seconds when the turn or step began. */
  at?: number;
  /** Seconds that an ended turn took, without the time when no daemon ran. */
  duration_s?: number | null;
  /** As in `turn_started`; absent for steps as well. */
  choices?: TurnChoices | null;
  /** The model of the turn, as `provider/model`. */
  model?: string;
  /** How an ended turn ended. */
  outcome?: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached" | null;
  /** Why it ended so, as in `turn_ended`. */
  error?: ErrorInfo | null;
}

/** What was chosen for one turn only. */
export interface TurnChoices {
  /** Choices of its input. */
  overrides?: TurnOverrides;
  /** What its input added to the system prompt. */
  system?: string;
}

/** Why something failed. */
export interface ErrorInfo {
  /** Stable, for programs. */
  code: string;
  /** What happened and what to do, for people. */
  message: string;
}

/** What a revert removed from history. */
export interface Reverted {
  /** Number of items that stayed. */
  position: number;
  /** The items removed after them. */
  items: Array<UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch>;
  /** The marks of the removed items. */
  marks: Array<Mark>;
  /** Files that were left as they were. */
  conflicts?: Array<string>;
}

/** The turn that is running, or that was running when the log ended. */
export interface OpenTurn {
  /** The turn. */
  turn_id: string;
  /** Unix seconds. */
  started_at: number;
  /** As in `turn_started`. */
  context: TurnContextShown;
  /** The latest step, from 1; 0 before the first. */
  step?: number;
  /** Whether that step has not ended. */
  step_open?: boolean;
  /** Number of steps that have ended. */
  steps_ended?: number;
  /** Model requests of sub-agents. */
  delegated_steps?: number;
  /** Tokens so far, sub-agents included. */
  usage?: Usage;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
  /** The model's latest message. */
  last_message?: string;
  /** How often a restarted daemon resumed the turn. */
  resumed?: number;
  /** Seconds in which no daemon ran the turn. */
  away_s?: number;
}

/** The context of a turn as frontends see it: everything except secrets. */
export interface TurnContextShown {
  /** Absolute path. */
  workspace: string;
  /** Name of the agent. */
  agent: string;
  /** `provider/model`. */
  model: string;
  /** Empty: none. */
  variant: string;
  /** What happens where no rule decides about a call. */
  approve: "always" | "ask" | "never";
  /** Maximum number of model requests in the turn. */
  max_steps: number;
  /** Names of the tools that the model is offered. */
  tools: Array<string>;
  /** Tokens. */
  context_window: number;
  /** Limit for this turn. */
  turn_budget?: Budget;
  /** Limit for the whole session. */
  session_budget?: Budget;
  /** JSON Schema of the final message, if any. */
  output_schema?: Record<string, unknown> | null;
  /** As it is sent to the model. */
  system_prompt?: string;
  /** What commands may do. */
  sandbox?: "full_access" | "read_only" | "workspace_write";
  /** How queued input is taken. */
  follow_ups?: "all" | "one_at_a_time";
  /** The agent can't write, whatever the rules say. */
  read_only?: boolean;
  /** Of a sub-agent's turn: the only places that it may change, if its task declared any. */
  write_paths?: Array<string> | null;
}

/** Events of a session, from `after` + 1 to `upto`. */
export interface ReplayResult {
  type: "replay";
  /** In order. Deltas of items completed long ago may be missing. */
  events: Array<Event>;
  /** The answer covers every event up to this `seq`; go on after it. */
  upto: number;
  /** `seq` of the last event in the log. */
  head: number;
  /** Names of the other frontends that have the session open now. */
  followers?: Array<string>;
}

/** One numbered event of a session. */
export interface Event {
  /** Counts from 1 within the session, without gaps. */
  seq: number;
  /** The session. */
  session_id: string;
  /** Unix seconds. */
  time: number;
  /** What happened. */
  body: SessionCreated | SessionConfigured | SessionTitled | SessionArchived | StatusChanged | QueueChanged | TurnStarted | TurnEnded | StepStarted | StepEnded | ItemStarted | ItemDelta | ItemCompleted | ToolCallUpdated | RequestOpened | RequestResolved | PlanUpdated | BackgroundChanged | HistoryCompacted | HistoryReverted | WarningRaised | ErrorRaised;
  /** The turn it belongs to, if any. */
  turn_id?: string | null;
  /** The submission that caused it, if any. */
  submission_id?: string | null;
}

/** The first event of a session. */
export interface SessionCreated {
  type: "session_created";
  /** Absolute path. */
  workspace: string;
  /** Settings to begin with. */
  settings: Settings;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: the last `seq` shared with it. */
  parent_seq?: number | null;
  /** For a sub-agent: the session that it works for. */
  owner_id?: string | null;
  /** For a sub-agent: the call that started it. */
  owner_item_id?: string | null;
}

/** The settings have changed. */
export interface SessionConfigured {
  type: "session_configured";
  /** All settings, from the next turn on. */
  settings: Settings;
}

/** The session has a new title. */
export interface SessionTitled {
  type: "session_titled";
  /** One line. */
  title: string;
  /** What a model used to write the title. */
  usage?: Usage;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
}

/** The session was archived, or taken out of the archive. */
export interface SessionArchived {
  type: "session_archived";
  /** False: it was taken out of the archive. */
  archived: boolean;
}

/** The session became idle or busy, retries a model request, or waits for an answer. */
export interface StatusChanged {
  type: "status_changed";
  /** What the session is doing now. */
  status: "busy" | "idle" | "retry" | "waiting";
  /** For `retry`: which attempt comes next. */
  attempt?: number | null;
  /** For `retry`: the number of attempts; absent if only time limits them. */
  limit?: number | null;
  /** For `retry`: seconds until that attempt. */
  delay_s?: number | null;
  /** For `retry`: why the last attempt failed; else what it is busy with. */
  cause?: string;
  /** For `waiting`: the open request. */
  request_id?: string | null;
}

/** The queue has changed. */
export interface QueueChanged {
  type: "queue_changed";
  /** All queued inputs, next one first. */
  queue: Array<QueuedInput>;
  /** No turn takes them by itself: `turn_continue`, `promote` or new input starts one. */
  waits?: boolean;
}

/** A turn begins. */
export interface TurnStarted {
  type: "turn_started";
  /** Does not change until the turn ends. */
  context: TurnContextShown;
  /** Choices for this turn, which `turn_continue` takes over; absent if the turn asks no model for an answer. */
  choices?: TurnChoices | null;
}

/** The last event of a turn: none of its processes, tasks or requests is left. */
export interface TurnEnded {
  type: "turn_ended";
  /** How it ended. */
  outcome: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached";
  /** Model requests of the turn, without sub-agents. */
  steps: number;
  /** Tokens of the turn, sub-agents included. */
  usage: Usage;
  /** Seconds of a clock that never jumps, without those in which no daemon ran. */
  duration_s: number;
  /** The model's final message; empty if there is none. */
  last_message?: string;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
  /** Present if `outcome` needs an explanation. */
  error?: ErrorInfo | null;
  /** Files that the turn changed. Their line counts add up the turn's patches. */
  files?: Array<FileChange>;
  /** More may have changed: some are not listed, or a step's changes are not known yet. */
  more_files?: boolean;
  /** Inputs that wait; none of them starts a turn before `turn_continue` or new input. */
  queued?: number;
  /** Size of the history as the provider counted it last; 0 if it has not. */
  context_tokens?: number;
  /** Tokens that the model takes; 0: unknown. */
  context_window?: number;
  /** What is checked out in the workspace: a branch, or `commit …`; empty: no repository. */
  branch?: string;
}

/** A model request goes out. */
export interface StepStarted {
  type: "step_started";
  /** Counts from 1 within the turn. */
  step: number;
}

/** The step's response and its tool calls are over. */
export interface StepEnded {
  type: "step_ended";
  /** Counts from 1 within the turn. */
  step: number;
  /** Why the response ended. */
  finish_reason: "content_filter" | "error" | "interrupted" | "length" | "paused" | "stop" | "tool_calls" | "unknown";
  /** Tokens of the request and its response. */
  usage: Usage;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
  /** Seconds; absent if the model sent nothing. */
  time_to_first_token_s?: number | null;
}

/** An item enters history, in the order of these events. */
export interface ItemStarted {
  type: "item_started";
  /** Its content so far. */
  item: UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch;
}

/** The next piece of an item's text, arguments or output. */
export interface ItemDelta {
  type: "item_delta";
  /** An open item. */
  item_id: string;
  /** What the delta is appended to. */
  channel: "arguments" | "output" | "text";
  /** The next piece; the log may join several into one. */
  delta: string;
  /** The item's `type`; absent in logs of older versions. */
  item_type?: "assistant_message" | "reasoning" | "tool_call" | null;
}

/** An item is complete. Tool calls complete in the order in which they finish. */
export interface ItemCompleted {
  type: "item_completed";
  /** The whole item; replaces what deltas added up to. */
  item: UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch;
}

/** A call changed its state; sent before `item_completed` when the state is final. */
export interface ToolCallUpdated {
  type: "tool_call_updated";
  /** The tool call. */
  item_id: string;
  /** The new state. */
  state: "completed" | "error" | "pending" | "running";
  /** Present exactly when `state` is `error`. */
  error_kind?: "aborted" | "denied" | "failed" | "invalid" | "lost" | "skipped" | null;
  /** New title; empty: unchanged. */
  title?: string;
  /** Present when a sub-agent has begun, and after each of its steps, with its totals. */
  sub_agent?: SubAgent | null;
  /** JSON text of the arguments that a hook put in place of the model's; empty: none. */
  rewritten_arguments?: string;
  /** Whether it may change anything; sent when it begins to run. */
  effect?: "read" | "write" | null;
  /** Why it may run; sent when it begins to run. Empty: unchanged. */
  allowed?: Array<Allowed>;
}

/** The turn, or one of its calls, waits for the user's answer. */
export interface RequestOpened {
  type: "request_opened";
  /** What is asked. */
  request: Request;
}

/** A request was answered, or is no longer open for another reason. */
export interface RequestResolved {
  type: "request_resolved";
  /** The request. */
  request_id: string;
  /** `cancelled`: no answer is needed any more. */
  resolution: "always" | "always_here" | "answer" | "cancelled" | "once" | "reject";
  /** Name of the frontend that answered; empty: a rule did. */
  by?: string;
  /** The reply, or feedback for the model. */
  text?: string;
}

/** The model changed its plan. */
export interface PlanUpdated {
  type: "plan_updated";
  /** The whole plan. */
  plan: Array<PlanEntry>;
}

/** The background commands and sub-agents of the session have changed. */
export interface BackgroundChanged {
  type: "background_changed";
  /** All that run, and the latest that have ended. */
  background: Array<BackgroundCommand>;
}

/** The history that the model gets is shorter now; the log keeps all of it. */
export interface HistoryCompacted {
  type: "history_compacted";
  /** Estimated size before, in tokens. */
  tokens_before: number;
  /** Estimated size afterwards, in tokens. */
  tokens_after: number;
  /** The compaction item that replaces earlier history; absent if pruned. */
  item_id?: string | null;
  /** Calls whose output is no longer sent. */
  pruned?: Array<string>;
  /** What the summary used. */
  usage?: Usage;
  /** US dollars; absent: the price is unknown. */
  cost?: number | null;
}

/** History and files were taken back to before a turn or a step, or a revert was undone. */
export interface HistoryReverted {
  type: "history_reverted";
  /** For a revert: history is as it was at this event. */
  to_seq: number;
  /** The last revert was undone: its history is back. */
  undone?: boolean;
  /** Files that something else has changed; left as they are. */
  conflicts?: Array<string>;
  /** The turn that was undone; empty if `undone`. */
  before_turn?: string;
  /** The first step that was undone; 0: the whole turn. */
  before_step?: number;
}

/** Something that the user should know; work goes on. */
export interface WarningRaised {
  type: "warning";
  /** What happened, for programs. */
  code: string;
  /** Sentences for people. */
  message: string;
  /** Always false. */
  fatal?: boolean;
}

/** Something failed. */
export interface ErrorRaised {
  type: "error";
  /** What happened, for programs. */
  code: string;
  /** Sentences for people. */
  message: string;
  /** The session can't go on without help. */
  fatal?: boolean;
}

/** What changed in files. */
export interface SessionDiffResult {
  type: "session_diff";
  /** The files that differ. */
  files: Array<FileChange>;
  /** Unified diff; omits the content of files that may not be read. */
  diff: string;
  /** The list or the diff was too long; its end is missing. */
  cut?: boolean;
  /** Other files may have changed without a snapshot. */
  partial?: boolean;
}

/** What happened to files; paths are relative to the workspace. */
export interface RevertResult {
  type: "revert";
  /** Files that were put back. */
  files?: Array<string>;
  /** Files that something else has changed; left as they are. */
  conflicts?: Array<string>;
  /** Other files may have changed without a snapshot. */
  partial?: boolean;
  /** Sessions of background sub-agents whose changes stay; revert each one separately. */
  sub_agents?: Array<string>;
}

/** The input began this turn. */
export interface Started {
  type: "started";
  /** The new turn. */
  turn_id: string;
}

/** The input goes to the running turn before its next model request. If the turn ends before that, the input is queued. */
export interface Steered {
  type: "steered";
  /** The running turn. */
  turn_id: string;
  /** The input, while it waits. */
  input_id: string;
}

/** The input waits until the running turn ends. */
export interface Queued {
  type: "queued";
  /** The queued input. */
  input_id: string;
  /** 0 is next. */
  position: number;
}

/** Lists the models, agents, tools, commands and servers. */
export interface CatalogResult {
  type: "catalog";
  /** The default model first. */
  models: Array<ModelSummary>;
  /** Tools offered to models. */
  tools: Array<ToolSummary>;
  /** Agents that can be chosen. */
  agents: Array<AgentSummary>;
  /** Custom commands. */
  commands?: Array<CommandSummary>;
  /** MCP servers. */
  servers?: Array<ServerSummary>;
  /** Language servers that may be started. */
  language_servers?: Array<LanguageServerSummary>;
  /** The sandbox of commands. */
  sandbox?: SandboxSummary | null;
  /** The providers of the models, by their names. */
  providers?: Array<ProviderSummary>;
  /** If requested: providers with well-known keys, set or not, then local servers. */
  offers?: Array<ProviderOffer>;
  /** Why the configuration file is not in effect, if so. */
  problem?: string;
}

/** A model. */
export interface ModelSummary {
  /** `provider/model`. */
  name: string;
  /** The API of its provider. */
  api: string;
  /** Used where no model is chosen. */
  default?: boolean;
  /** Tokens; absent if unknown. */
  context_window?: number | null;
  /** Why this entry can't be used now; empty if it can. */
  problem?: string;
  /** Tokens; absent if unknown. */
  max_output?: number | null;
  /** Absent if unknown. */
  price?: Price | null;
  /** Names of variants that a turn can choose. */
  variants?: Array<string>;
  /** Not in the configuration; only the provider lists it. */
  listed?: boolean;
  /** Limits last reported by the provider; empty if none. */
  rate_limits?: Array<RateLimit>;
}

/** Prices of one model in US dollars per million tokens. */
export interface Price {
  /** Input tokens. */
  input: number;
  /** Output tokens, reasoning included. */
  output: number;
  /** Tokens read from a cache; absent: as `input`. */
  cached_input?: number | null;
  /** Tokens written to a cache; absent: as `input`. */
  cache_write?: number | null;
  tiers?: Array<PriceTier>;
}

/** Prices of a whole request with long input, in US dollars per million tokens. */
export interface PriceTier {
  /** Applies if the request has more input tokens. */
  above: number;
  /** Input tokens. */
  input: number;
  /** Output tokens, reasoning included. */
  output: number;
  /** Tokens read from a cache; absent: as `input`. */
  cached_input?: number | null;
  /** Tokens written to a cache; absent: as `input`. */
  cache_write?: number | null;
}

/** A provider's limit on the use of a model, as of the last response. */
export interface RateLimit {
  /** The provider's name for the unit: `requests`, `tokens`, … */
  name: string;
  /** Units left until the reset. */
  remaining: number;
  /** Units available after a reset. */
  limit?: number | null;
  /** Unix seconds. */
  resets_at?: number | null;
}

/** A tool. */
export interface ToolSummary {
  /** As the model calls it. */
  name: string;
  /** What a call does: `read`, `write`, `command` or `agent`. */
  effect: string;
  /** As the model gets it. */
  description: string;
  /** The MCP server that provides it; empty: built in. */
  server?: string;
}

/** An agent: a prompt, permissions and a model under one name. */
export interface AgentSummary {
  /** Name by which the agent is chosen. */
  name: string;
  /** One line; may be empty. */
  description?: string;
  /** Absent: the session's model. */
  model?: string | null;
  /** Whether the agent can only read. */
  read_only?: boolean;
  /** Why this entry can't be used now; empty if it can. */
  problem?: string;
  /** Variant of the model; absent: the configured one. */
  variant?: string | null;
  /** Steps per turn; absent: the configured limit. */
  max_steps?: number | null;
}

/** A custom command. */
export interface CommandSummary {
  /** Typed as `/name`. */
  name: string;
  /** One line; may be empty. */
  description?: string;
  /** Agent of the turn; absent: the session's agent. */
  agent?: string | null;
  /** Model of the turn; absent: the session's model. */
  model?: string | null;
  /** Why this entry can't be used now; empty if it can. */
  problem?: string;
  /** A sub-agent does it; `agent` is then the sub-agent. */
  subtask?: boolean;
}

/** An MCP server. */
export interface ServerSummary {
  /** Its name in the configuration. */
  name: string;
  /** `idle`: not needed yet. `ended`: gone, and started again for the next call. `failed`: could not be started. `needs_login`: use the op `mcp_login`. */
  state: "disabled" | "ended" | "failed" | "idle" | "needs_login" | "starting" | "up";
  /** Number of its tools. */
  tools?: number;
  /** Why it is not `up`; empty if there is no problem. */
  problem?: string;
}

/** A language server that may be started. */
export interface LanguageServerSummary {
  /** Its name in the configuration. */
  name: string;
  /** Languages that it checks. */
  languages: Array<string>;
  /** Path; empty if it is not installed. */
  program?: string;
  /** Whether the configuration names it. Else the first server installed runs. */
  chosen?: boolean;
  /** Number of directories in which the server runs. */
  running?: number;
  /** Why a process has ended; empty if none has failed. */
  problem?: string;
}

/** The sandbox of commands. */
export interface SandboxSummary {
  /** What commands may do unless a session says otherwise. */
  mode: "full_access" | "read_only" | "workspace_write";
  /** Whether commands may use the network. */
  network?: boolean;
  /** The mechanism, such as `bubblewrap`; empty if none works. */
  name?: string;
  /** Why no mechanism works, so that every command needs approval; else empty. */
  problem?: string;
  /** What this mechanism can't enforce; empty if it enforces all. */
  limits?: string;
  /** Why no better mechanism works; empty if this is the best. */
  instead?: string;
}

/** A model provider that is in use. */
export interface ProviderSummary {
  /** The part of a model's name before the slash. */
  name: string;
  /** The API that it speaks. */
  api: string;
  /** Address of the provider's server; empty if there is none. */
  base_url?: string;
  /** Source of the key, such as `the variable X`; empty if the provider has none. */
  key?: string;
  /** The default model belongs to this provider. */
  default?: boolean;
  /** Whether the provider answered just now; absent if it was not asked. */
  answers?: boolean | null;
  /** Why this entry can't be used now; empty if it can. */
  problem?: string;
}

/** A provider that could be configured: one with a well-known key, or a server found here. */
export interface ProviderOffer {
  /** Suggested name for the provider. */
  name: string;
  /** The API that it speaks. */
  api: string;
  /** The address of its server. */
  base_url: string;
  /** The provider's models, the best choice first. */
  models: Array<string>;
  /** The well-known variable for the key; empty for a running server. */
  api_key_env?: string;
}

/** What a workspace's `.tiller` defines; it has no effect unless it is trusted. */
export interface ProjectResult {
  type: "project";
  /** Absolute path. */
  workspace: string;
  /** Digest of the content of `files`; empty if there are no files. */
  digest: string;
  /** Relative to the workspace. */
  files: Array<string>;
  /** Whether the user trusts this digest. */
  trusted: boolean;
  /** Why the files can't be trusted; empty if they can. */
  problem?: string;
  /** Hooks that the files define. */
  hooks?: Array<HookSummary>;
}

/** A hook: a command that runs at a moment of a turn. */
export interface HookSummary {
  /** The moment of a turn at which the hook runs. */
  on: string;
  /** A command line for the shell. */
  command: string;
  /** Pattern of tool names, for hooks that run at tool calls. */
  tool?: string;
  /** Name for messages; may be empty. */
  name?: string;
}

/** Progress of a login to an MCP server. */
export interface McpLoginResult {
  type: "mcp_login";
  /** `waiting`: the user has to open `url`. `done`: the login is stored. */
  state: "done" | "logged_out" | "waiting";
  /** The address that the user opens in a browser, while `waiting`. */
  url?: string;
}

/** Lasting rules by directory, then the session's own, oldest first. */
export interface RulesResult {
  type: "rules";
  /** The rules; later ones take precedence. */
  rules: Array<RuleSummary>;
}

/** A permission rule that an answer or a frontend made. */
export interface RuleSummary {
  /** For `rule_revoke`. */
  id: string;
  /** Such as `bash`. */
  permission: string;
  /** A glob over the subject, such as a command or a path. */
  pattern: string;
  /** The rule's decision; a lasting rule always allows. */
  action?: "allow" | "ask" | "deny";
  /** Directory of a lasting rule; empty for a session's rule. */
  workspace?: string;
  /** Session that has the rule; empty for a lasting rule. */
  session_id?: string;
  /** Unix seconds; absent if unknown. */
  granted_at?: number | null;
  /** The frontend that granted it; empty if unknown. */
  by?: string;
}

/** Figures about the process. */
export interface DaemonStatusResult {
  type: "daemon_status";
  /** Such as `1.2.0`. */
  daemon_version: string;
  /** The daemon's process id. */
  pid: number;
  /** Seconds. */
  uptime_s: number;
  /** The database with all sessions. */
  log_path: string;
  /** Sessions in the log. */
  sessions: number;
  /** Sessions in memory. */
  sessions_loaded: number;
  /** Turns that are running now. */
  turns_running: number;
  /** Resident memory; 0 where the system does not report it. */
  rss_bytes?: number;
  /** Whether the daemon is about to end. */
  draining?: boolean;
  /** What is wrong with the log, in whole sentences. */
  problems?: Array<string>;
}

/** The op had no effect. */
export interface Rejected {
  type: "rejected";
  /** The submission that this answers; empty if unreadable. */
  submission_id: string;
  /** The reason, for programs. */
  code: "already_resolved" | "bad_message" | "busy" | "empty_input" | "expected_turn_mismatch" | "internal" | "invalid_settings" | "no_active_turn" | "not_found" | "overloaded" | "shutting_down" | "too_large" | "turn_not_steerable" | "unauthorized" | "unavailable" | "unsupported_protocol";
  /** Sentences for people. */
  message: string;
  /** Details of the code, such as the refused input. */
  data?: Record<string, unknown>;
}

/** Asks a lender for a file; published under the topic `lender/` and its name. To be answered by `lent_file` within 2 seconds. Then the file on disk is used, and the lender is not asked again until it lends again. */
export interface FileWanted {
  /** Id for the answer. */
  question_id: string;
  /** The session that the lender lends to. */
  session_id: string;
  /** Absolute; below the workspace of the session. */
  path: string;
}

/** A line to `tiller rpc`, with exactly one of `submit`, `follow` and `unfollow`. */
export interface RpcInput {
  /** Submit an op; an `answer` or an `error` follows. Ops on the same session are submitted in order, each after the previous one was answered. */
  submit?: RpcSubmission | null;
  /** Send the events of this session; `daemon`: life-cycle events of all sessions. */
  follow?: string | null;
  /** For `follow`: start after the event with this `seq`. */
  after?: number;
  /** Stop sending the events of this session; `unfollowed` confirms it. */
  unfollow?: string | null;
  /** Comes back with `answer`, `error` and `unfollowed`. */
  tag?: string | number | null;
}

/** A submission without the token, which `tiller rpc` adds. */
export interface RpcSubmission {
  /** What to do. */
  op: Hello | SessionCreate | SessionList | SessionSearch | InputHistory | SessionGet | SessionDiff | SessionConfigure | SessionFork | SessionArchive | SessionDelete | SessionLend | LentFile | Replay | UserInput | QueueEdit | TurnContinue | Interrupt | Answer | Compact | Revert | Unrevert | Shell | Catalog | Project | McpLogin | RulesList | RuleRevoke | DaemonStatus | Shutdown;
  /** As in `Submission`: the same id sent again, even by another process, gets the same answer. Absent: `tiller rpc` creates an id. */
  id?: string | null;
  /** The frontend's name; absent: that of `tiller rpc --name`. */
  client?: string;
}

/** A line from `tiller rpc`, with exactly one field apart from `hello`, `message` and `tag`. */
export interface RpcOutput {
  /** `connected` (the first line), or `reconnecting` while there is no daemon. */
  state?: "connected" | "reconnecting" | null;
  /** With `connected`: the daemon. */
  hello?: HelloResult | null;
  /** With `reconnecting`: why reconnecting fails, if it does. */
  message?: string;
  /** The answer to a submission. */
  answer?: Accepted | Rejected | null;
  /** The next event of a followed session, in order and only once. */
  event?: Event | null;
  /** A life-cycle event of any session, after `follow` of `daemon`. Some may be missing: list the sessions again after `connected`, and from time to time. */
  notification?: Event | null;
  /** Sent once after `follow`: all events so far were sent; later ones are live. */
  caught_up?: CaughtUp | null;
  /** Who else has a followed session open: at once if anyone has, then at each change. */
  followers?: Followers | null;
  /** The daemon has a new log: forget this session's events; all are sent again. */
  started_over?: string | null;
  /** No further event of this session follows this line. */
  unfollowed?: Unfollowed | null;
  /** A question to a lender whose `session_lend` with `reads_files` was submitted here; answer with `lent_file`. */
  file_wanted?: FileWanted | null;
  /** Why a line has no answer. */
  error?: RpcError | null;
  /** `tag` of the line that this is about. */
  tag?: string | number | null;
}

/** How far a session's events have been sent. */
export interface CaughtUp {
  /** The session. */
  session_id: string;
  /** The last event so far. */
  seq: number;
}

/** Who else has a followed session open. */
export interface Followers {
  /** The session. */
  session_id: string;
  /** Names of the other frontends; several may have the same name. */
  names: Array<string>;
}

/** A session that is no longer followed. */
export interface Unfollowed {
  /** The session. */
  session_id: string;
  /** Why, unless `unfollow` asked for it: for example, there is no such session. */
  message?: string;
}

/** A line that could not be carried out, or whose answer is unknown. */
export interface RpcError {
  /** Number of the line, from 1. */
  line: number;
  /** A sentence for a person. */
  message: string;
  /** The daemon has not answered in time, and the op may still take effect. Submit it again with this `id` to get its answer. */
  submission_id?: string;
}
