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

/** An op, as sent by a frontend. */
export interface Submission {
  /** Id that the frontend chooses. A repeat with the same id gets the same answer. */
  id: string;
  /** The op to execute. */
  op: Hello | SessionCreate | SessionList | SessionSearch | InputHistory | SessionGet | SessionDiff | SessionConfigure | SessionFork | SessionArchive | SessionMarkSeen | SessionDelete | SessionLend | LentFile | Replay | UserInput | QueueEdit | TurnContinue | Interrupt | Answer | Compact | Revert | Unrevert | Shell | Catalog | Project | McpLogin | Accounts | RulesList | RuleRevoke | WorktreeList | WorktreeLand | WorktreeRemove | WorktreeRestore | DaemonStatus | Backup | Shutdown;
  /** Name of the frontend; shown with its inputs and answers. */
  client?: string;
  /** Content of the token file in the runtime directory. */
  token?: string;
}

/** Introduces a frontend. Answered by `HelloResult`, or rejected as `unsupported_protocol`. */
export interface Hello {
  type: "hello";
  /** Version of the protocol that the frontend speaks. */
  protocol_version: number;
  /** Name of the frontend, for display. */
  name: string;
}

/** Creates a session in a directory. Answered by `Created`. */
export interface SessionCreate {
  type: "session_create";
  /** Absolute path of an existing, readable directory. */
  workspace: string;
  /** The agent; overrides `settings.agent`. */
  agent?: string | null;
  /** The model; overrides `settings.model`. */
  model?: string | null;
  /** The initial settings. */
  settings?: Settings;
  /** Work in a worktree of the repository around `workspace`, in the same subdirectory. It is made if it does not exist. Rejected as `worktree` if that is not possible. */
  worktree?: WorktreeChoice | null;
}

/** Settings of a session. An absent field leaves the choice to the agent or the configuration. */
export interface Settings {
  /** Name of an agent. */
  agent?: string | null;
  /** Model, as `provider/model`. */
  model?: string | null;
  /** Name of a variant of the model. Empty for no variant, even if one is configured. */
  variant?: string | null;
  /** What happens to a call if no rule decides. `ask`: the user is asked. `always`: the call is allowed. `never`: the call is denied, and nobody is asked. */
  approve?: "always" | "ask" | "never" | null;
  /** What commands are allowed to do. `read_only`: only read. `workspace_write`: also write in the workspace. `full_access`: everything that the user is allowed to do. */
  sandbox?: "full_access" | "read_only" | "workspace_write" | null;
  /** How many queued inputs a turn takes at a time: one, or all. */
  follow_ups?: "all" | "one_at_a_time" | null;
  /** Maximum number of model requests in one turn. */
  max_steps?: number | null;
  /** Limit for each turn. */
  turn_budget?: Budget | null;
  /** Limit for the whole session. */
  session_budget?: Budget | null;
  /** The session's own rules, which are stronger than configured rules. */
  permissions?: Array<Rule> | null;
  /** Names of the tools to offer, or patterns for MCP tools. Default: the tools that the agent lists, or all tools if the agent has no list. */
  tools?: Array<string> | null;
}

/** Limits on the use of models. An absent field means no limit. A step that is expected to use up a budget is the turn's last one, and gets no tools. */
export interface Budget {
  /** Number of model requests. */
  steps?: number | null;
  /** Number of tokens sent and received. */
  tokens?: number | null;
  /** Cost in US dollars; requests without a known price don't count. */
  cost?: number | null;
  /** Working time in seconds. */
  time_s?: number | null;
}

/** A permission rule; the last matching rule wins. A granted rule is stronger than all others, except those that deny. */
export interface Rule {
  /** The permission, such as `bash`, or a glob that matches several. */
  permission: string;
  /** A glob that matches subjects, such as commands or paths. */
  pattern: string;
  action: "allow" | "ask" | "deny";
  /** Whether the rule comes from an answer such as `always`. Such a rule never overrides a denial. */
  granted?: boolean;
}

/** The worktree in which a new session works. */
export interface WorktreeChoice {
  /** Name of the worktree and of its branch. A worktree of this repository with this name is used again. Default: a new name. */
  name?: string;
  /** Branch or commit that a new worktree begins with. Default: what is checked out. */
  base?: string;
}

/** Lists sessions, most recently active first. Answered by `SessionListResult`. Sessions of sub-agents are listed only if `owner_id` or `sub_agents` asks for them. */
export interface SessionList {
  type: "session_list";
  /** Only sessions in this directory. Default: all. */
  workspace?: string | null;
  /** List archived sessions instead of sessions that are not archived. */
  archived?: boolean;
  /** Maximum number of sessions in the answer. */
  limit?: number;
  /** `next` of the previous page. Default: the first page. */
  after?: string | null;
  /** List only the sub-agents that work for this session. */
  owner_id?: string | null;
  /** Include the sessions of all sub-agents. */
  sub_agents?: boolean;
  /** List only these sessions, whether they are archived or not. Default: all. */
  sessions?: Array<string>;
  /** Whether a person looks at a list that the frontend keeps up to date. This counts as if they had done something now, so a frontend should ask at least every 5 s. */
  focus?: boolean;
}

/** Finds sessions by words in their texts. Answered by `SessionSearchResult`. The search covers titles, inputs, the model's answers and names of changed files. It leaves out the sessions of sub-agents. Reverted text is still found. Case and accents are ignored. Rejected as `empty_input` if the query contains no word. */
export interface SessionSearch {
  type: "session_search";
  /** Words that must all occur in the same text. Words in quotes are a phrase; `*` at the end of a word stands for any ending. No other character is special. */
  query: string;
  /** Only sessions in this directory. Default: all. */
  workspace?: string | null;
  /** Include archived sessions. */
  archived?: boolean;
  /** Maximum number of sessions in the answer. */
  limit?: number;
  /** `next` of the previous page. Default: the first page. */
  after?: string | null;
}

/** Lists the user's inputs in all sessions, newest first. Answered by `InputHistoryResult`. A repeated input is listed once. The prompts of sub-agents are left out. */
export interface InputHistory {
  type: "input_history";
  /** Only sessions in this directory. Default: all. */
  workspace?: string | null;
  /** Maximum number of inputs in the answer. */
  limit?: number;
  /** `next` of the previous page. Default: the first page. */
  after?: string | null;
}

/** Returns a snapshot of a session. Answered by `SessionResult`. */
export interface SessionGet {
  type: "session_get";
  /** Id of the session. */
  session_id: string;
}

/** Returns a session's changes to files. Answered by `SessionDiffResult`. */
export interface SessionDiff {
  type: "session_diff";
  /** Id of the session. */
  session_id: string;
  /** Show only this turn. Default: all turns. */
  turn_id?: string | null;
  /** Show only this step, counted from 1. Default: all steps. */
  step?: number | null;
}

/** Changes a session's title, settings or workspace; settings apply from the next turn on. */
export interface SessionConfigure {
  type: "session_configure";
  /** Id of the session. */
  session_id: string;
  /** New settings; absent fields stay as they are. */
  settings?: Settings;
  /** The new title, in one line. Default: no change. */
  title?: string | null;
  /** Settings to reset to their defaults before `settings` takes effect. */
  clear?: Array<string>;
  /** Absolute path to which the workspace has moved. `busy` during a turn. */
  workspace?: string | null;
}

/** Creates a session that shares another session's log up to an event. Answered by `Created`. */
export interface SessionFork {
  type: "session_fork";
  /** Id of the session. */
  session_id: string;
  /** `seq` of the last shared event. Default: the latest. */
  at?: number | null;
}

/** Archives a session, or takes it out of the archive. */
export interface SessionArchive {
  type: "session_archive";
  /** Id of the session. */
  session_id: string;
  /** Whether to archive the session; false unarchives it. */
  archived?: boolean;
}

/** Says that a user has seen a session, so that no frontend lists it as unseen. */
export interface SessionMarkSeen {
  type: "session_mark_seen";
  /** Id of the session. */
  session_id: string;
  /** `seq` of the last event that the user has seen. */
  until: number;
}

/** Deletes a session for good, with its log and its sub-agents. Rejected as `busy` while a turn runs, or while a fork shares the log. */
export interface SessionDelete {
  type: "session_delete";
  /** Id of the session. */
  session_id: string;
  /** Do nothing unless the session is without any input or turn; then its new worktree goes, too. */
  if_empty?: boolean;
}

/** Lends MCP servers or unsaved files to a session. If the op lends neither, it ends the loan. A loan also ends when the daemon ends, or after 10 minutes. To renew the loan, submit the op again every few minutes and before each input. */
export interface SessionLend {
  type: "session_lend";
  /** Id of the session. */
  session_id: string;
  /** Id chosen by the frontend; each lender has one loan per session. */
  lender: string;
  /** MCP servers for the turns of this session and its sub-agents, in addition to the configured servers. A configured server with the same name takes precedence. */
  mcp_servers?: Array<LentServer>;
  /** Whether the frontend knows the unsaved text of files; if so, it gets `FileWanted` questions. */
  reads_files?: boolean;
}

/** An MCP server: a program, or an address of the streamable HTTP transport. */
export interface LentServer {
  /** Name of 1 to 32 letters, digits, `-` and `_`. */
  name: string;
  /** Program and arguments; empty if `url` is set. */
  command?: Array<string>;
  /** Variables for the program; may contain secrets. */
  env?: Record<string, string>;
  /** Address of the server; absent if `command` is set. */
  url?: string | null;
  /** Headers to send with each request; may contain secrets. */
  headers?: Record<string, string>;
}

/** Answers a `FileWanted` message. A late answer is ignored. */
export interface LentFile {
  type: "lent_file";
  question_id: string;
  /** The whole text in the editor; absent if the frontend can't provide it. */
  text?: string | null;
}

/** Returns a session's events from the log, oldest first. Answered by `ReplayResult`. */
export interface Replay {
  type: "replay";
  /** Id of the session. */
  session_id: string;
  /** Return events with a higher `seq` than this. */
  after?: number;
  /** Maximum number of events. `replay_bytes_max` limits the answer, too. */
  limit?: number;
  /** An id that the frontend chooses when it opens the session, and sends with each `replay`. After each `replay`, the frontend counts as a follower for 20 s, so it should submit the next one within 10 s. Other frontends see the name from the submission's `client`. */
  follower?: string | null;
  /** Whether `follower` has closed the session. */
  leaves?: boolean;
  /** Whether a person looks at the frontend `follower` now. While anybody looks, `[[notify]]` sends nothing. A frontend that can't tell says nothing; then only its ops show that a person is there. */
  focus?: boolean;
}

/** Sends the user's input: text, images, files, or several of these. Answered by `Started`, `Steered` or `Queued`. If an image or file can't be used, the whole input is rejected. */
export interface UserInput {
  type: "user_input";
  /** Id of the session. */
  session_id: string;
  /** The user's text; may be empty if something is attached. */
  text?: string;
  /** Images and PDFs. The content determines the format; large images are scaled down. */
  images?: Array<Image>;
  /** Paths of files, absolute or relative to the workspace. The model gets the paths, not the content, and reads the files that it needs. */
  files?: Array<string>;
  /** `start` begins a turn with this input. `steer` adds the input to the running turn. `queue` lets the running turn take the input after the turn's other work. `auto` steers the running turn. If no turn is running, `auto` and `queue` start one. If older inputs wait, that turn begins with the first of them, and this input is queued. */
  delivery?: "auto" | "queue" | "start" | "steer";
  /** Accept the input only if this turn is running. Default: no check. */
  expected_turn_id?: string | null;
  /** Choices for the turn that this input starts, if it starts one. */
  overrides?: TurnOverrides;
  /** If no turn is running, only add the input to history; the answer has no result. If a turn is running, the input steers it. Can't be combined with the delivery `queue`. */
  no_reply?: boolean;
  /** Text to add to the system prompt of the turn that this input starts. */
  system?: string;
  /** Context for the input, such as a program's output. The model gets it after `text`, marked as context. Commands and sub-agents named in the context are not called. */
  context?: string;
}

/** An image from the user or a tool, or a PDF document that the user attached. */
export interface Image {
  /** Media type, such as `image/png`. The daemon ignores this field in user input. */
  media_type: string;
  /** The file's bytes; base64 in JSON. */
  data: string;
  /** Text of a document, for models that don't accept documents. The daemon ignores this field in user input. */
  text?: string;
  /** Number of pages of a document. The daemon ignores this field in user input. */
  pages?: number;
}

/** Choices for the turn that one input starts. An absent field leaves the choice to the session. */
export interface TurnOverrides {
  /** Name of an agent. */
  agent?: string | null;
  /** Model, as `provider/model`. */
  model?: string | null;
  /** Name of a variant of the model. Empty for no variant, even if one is configured. */
  variant?: string | null;
  /** What happens to a call if no rule decides. `ask`: the user is asked. `always`: the call is allowed. `never`: the call is denied, and nobody is asked. */
  approve?: "always" | "ask" | "never" | null;
  /** What commands are allowed to do. `read_only`: only read. `workspace_write`: also write in the workspace. `full_access`: everything that the user is allowed to do. */
  sandbox?: "full_access" | "read_only" | "workspace_write" | null;
  /** Maximum number of model requests in one turn. */
  max_steps?: number | null;
  /** Limit for each turn. */
  turn_budget?: Budget | null;
  /** Names of the tools to offer, or patterns for MCP tools. Default: the tools that the agent lists, or all tools if the agent has no list. */
  tools?: Array<string> | null;
  /** JSON Schema that the final message must match. */
  output_schema?: Record<string, unknown> | null;
  /** Fields to add to each request to the provider; they override configured fields. */
  options?: Record<string, unknown> | null;
}

/** Changes one queued input. Answered by `Started` if `promote` begins a turn. */
export interface QueueEdit {
  type: "queue_edit";
  /** Id of the session. */
  session_id: string;
  /** Id of the queued input. */
  input_id: string;
  /** `edit` replaces the text. `remove` drops the input. `move` changes the position. `promote` lets the input steer the running turn or, if no turn is running, start one. */
  action: "edit" | "move" | "promote" | "remove";
  /** The new text, for `edit`. */
  text?: string;
  /** The new position, for `move`; 0 is next. */
  position?: number;
}

/** Starts a turn without a new message. Answered by `Started`, or rejected as `busy`. If inputs are queued, the turn takes the first one. Otherwise, the turn continues the work that a failure, an interrupt, a limit, a revert or a fork has cut off. Rejected as `empty_input` if there is nothing to continue. */
export interface TurnContinue {
  type: "turn_continue";
  /** Id of the session. */
  session_id: string;
  /** Choices for the new turn, in addition to the choices of the continued turn. */
  overrides?: TurnOverrides;
}

/** Cancels the running turn at once, or ends a background command or sub-agent. */
export interface Interrupt {
  type: "interrupt";
  /** Id of the session. */
  session_id: string;
  /** The turn to end. Default: the running turn. */
  turn_id?: string | null;
  /** End this background command or sub-agent instead; the turn continues. */
  background_id?: string | null;
}

/** Answers an open request. */
export interface Answer {
  type: "answer";
  /** Id of the request. */
  request_id: string;
  /** `once`, `always` and `always_here` approve the call. `always` also allows the request's `always` patterns for the rest of the session. `always_here` also allows these patterns for every session in the request's `always_here` directory. `reject` with a reason in `text` refuses only this call. `reject` without a reason also ends the turn, unless the request is a question. `answer` replies to a question. */
  decision: "always" | "always_here" | "answer" | "once" | "reject";
  /** For `answer`: the reply. For `reject`: a reason, which the model gets. */
  text?: string;
}

/** Replaces old history with a summary. Answered by `Started`, or rejected as `busy`. The compaction is a turn without steps. If history is too short, the turn completes with the warning `nothing_to_compact`. If no summary can be made, the turn fails. */
export interface Compact {
  type: "compact";
  /** Id of the session. */
  session_id: string;
  /** What the user wants the summary to keep. */
  instructions?: string;
}

/** Restores files and history to the state before a turn, or before a step of a turn. A file that others have changed since that point stays as it is. Answered by `RevertResult`. */
export interface Revert {
  type: "revert";
  /** Id of the session. */
  session_id: string;
  /** The turn to undo, with everything after it. */
  turn_id: string;
  /** The first step to undo; later steps are undone, too. Default: the whole turn. */
  step?: number | null;
}

/** Undoes the last revert, if no turn has begun since. Answered by `RevertResult`. */
export interface Unrevert {
  type: "unrevert";
  /** Id of the session. */
  session_id: string;
}

/** Runs the user's own command in the workspace, and adds the output to history. No permission rule applies. The command is a turn without steps. The turn's only item is a `bash` call with `by_user`. The turn can be interrupted but not steered. Answered by `Started`, or rejected as `busy`. */
export interface Shell {
  type: "shell";
  /** Id of the session. */
  session_id: string;
  /** The command line, for the shell. */
  command: string;
}

/** Lists models, agents, tools, commands and servers. Answered by `CatalogResult`. */
export interface Catalog {
  type: "catalog";
  /** Include the definitions in this directory. Default: only the user's. */
  workspace?: string | null;
  /** Start the MCP servers that are not up, and wait. */
  start_servers?: boolean;
  /** Ask the providers for their models; may take some seconds. */
  ask?: boolean;
  /** Look for providers that could be configured. */
  offers?: boolean;
  /** Include the MCP servers that frontends lend to this session. */
  session_id?: string | null;
}

/** Returns the definitions in a workspace's `.tiller`. Answered by `ProjectResult`. With `trust`, the op also changes whether the definitions are trusted. */
export interface Project {
  type: "project";
  /** Absolute path of the directory. */
  workspace: string;
  /** True: trust the content that has this `digest`, from the next turn on. False: trust nothing. Absent: change nothing. */
  trust?: boolean | null;
  /** `digest` of the `ProjectResult` that the user agreed to. */
  digest?: string;
}

/** Logs in to or out of an MCP server. Answered by `McpLoginResult`, or rejected on failure. */
export interface McpLogin {
  type: "mcp_login";
  /** Name of the server in the configuration. */
  server: string;
  /** `begin` returns the address to open. `check` tells whether the login is complete. `finish` completes it with `redirect`, if the browser can't reach the daemon. `cancel` gives up. `logout` forgets the login. */
  action?: "begin" | "cancel" | "check" | "finish" | "logout";
  /** For `finish`: the browser's last address, or the `code` in that address. */
  redirect?: string;
}

/** Lists accounts, or logs in or out. Answered by `AccountsResult`, or rejected on failure. The frontend receives the browser's redirect, so the daemon opens no port for a login. */
export interface Accounts {
  type: "accounts";
  /** `begin` returns the address to open in a browser. `finish` completes the login with `redirect`. `cancel` gives up. `logout` revokes the login and forgets its tokens. */
  action?: "begin" | "cancel" | "finish" | "list" | "logout";
  /** Name of the account. A new name adds an account. */
  account?: string;
  /** For `begin`: the port on 127.0.0.1, on the machine of the browser, at which the frontend expects the redirect to `/auth/callback`. */
  port?: number;
  /** For `finish`: the address to which the browser was sent. */
  redirect?: string;
}

/** Lists lasting rules, which the answer `always_here` makes. Answered by `RulesResult`. */
export interface RulesList {
  type: "rules_list";
  /** Only rules for this directory. Default: all. */
  workspace?: string | null;
  /** Only this session's own rules and the lasting rules for its directory. */
  session_id?: string | null;
}

/** Revokes one permission rule. Running turns lose the rule, too. */
export interface RuleRevoke {
  type: "rule_revoke";
  /** Id of the rule, from a `RuleSummary`. */
  rule_id: string;
  /** Session that has the rule; absent for a lasting rule. */
  session_id?: string | null;
}

/** Lists worktrees, oldest first. Answered by `WorktreeListResult`. */
export interface WorktreeList {
  type: "worktree_list";
  /** Only worktrees of the repository around this directory. Default: all. */
  workspace?: string | null;
  /** Only worktrees with this name. Default: all. */
  name?: string;
}

/** Brings a worktree's commits onto its base branch. Answered by `WorktreeLanded`. Rejected as `conflict` if the commits don't fit, with `files`, `onto` and a `task` for the session in `data`, and as `worktree` for any other reason. Nothing has changed then. */
export interface WorktreeLand {
  type: "worktree_land";
  /** Id of the worktree, from `worktree_list`. */
  worktree_id: string;
  /** `merge`: fast-forward if possible, else a merge commit. `rebase`: one commit after another. `squash`: a single commit. */
  how?: "merge" | "rebase" | "squash";
  /** Branch to land on. Default: `base_branch`. */
  onto?: string;
}

/** Removes a worktree, which can be restored for 30 days. Answered by `WorktreeResult`. Rejected as `worktree` if anything in it exists nowhere else, unless `force`. */
export interface WorktreeRemove {
  type: "worktree_remove";
  /** Id of the worktree, from `worktree_list`. */
  worktree_id: string;
  /** Remove it whatever is in it. */
  force?: boolean;
}

/** Puts a removed worktree back. Answered by `WorktreeResult`. */
export interface WorktreeRestore {
  type: "worktree_restore";
  /** Id of the worktree, from `worktree_list`. */
  worktree_id: string;
}

/** Returns the status of the daemon's process. Answered by `DaemonStatusResult`. */
export interface DaemonStatus {
  type: "daemon_status";
}

/** Copies the log into a new file while the daemon runs. Answered by `BackupResult`. */
export interface Backup {
  type: "backup";
  /** The absolute path of the new file, on the daemon's machine. */
  path: string;
}

/** Ends the daemon. */
export interface Shutdown {
  type: "shutdown";
  /** `drain` lets running turns finish first, `now` interrupts them. */
  mode?: "drain" | "now";
}

/** The op has taken effect and is in the log. */
export interface Accepted {
  type: "accepted";
  /** Id of the submission to which this is the answer. */
  submission_id: string;
  /** The op's result; absent if the op has none. */
  result?: HelloResult | Created | SessionListResult | SessionSearchResult | InputHistoryResult | SessionResult | ReplayResult | SessionDiffResult | RevertResult | Started | Steered | Queued | CatalogResult | ProjectResult | McpLoginResult | AccountsResult | BackupResult | RulesResult | WorktreeListResult | WorktreeLanded | WorktreeResult | DaemonStatusResult | null;
}

/** Identifies the daemon and its log, and shows whether to restart the daemon. */
export interface HelloResult {
  type: "hello";
  /** Version of the daemon's program, such as `1.2.0`. */
  daemon_version: string;
  /** Version of the protocol that the daemon speaks. */
  protocol_version: number;
  /** Id of the log. If the id has changed, earlier `seq`s are invalid. */
  log_id: string;
  /** Sizes that the daemon accepts. */
  limits: Limits;
  /** Missing environment variables for providers' keys: those that the configuration names and, if no model is configured, the well-known ones. */
  missing_keys?: Array<string>;
  /** Whether the daemon's program has been replaced since the daemon was started. */
  replaced?: boolean;
  /** Whether no model is known. Then new sessions and turns first look for a model server on the daemon's machine. */
  searches_model?: boolean;
}

/** Limits of this daemon, in bytes. */
export interface Limits {
  /** Largest message in either direction. */
  message_bytes_max: number;
  /** Largest answer to `replay`, unless one event is larger. */
  replay_bytes_max: number;
  /** Largest input: text and images together. */
  input_bytes_max: number;
}

/** The session that `session_create` or `session_fork` has created. */
export interface Created {
  type: "created";
  /** Id of the new session. */
  session_id: string;
}

/** A page of sessions. */
export interface SessionListResult {
  type: "session_list";
  /** Sessions, most recently active first. */
  sessions: Array<SessionSummary>;
  /** `after` for the next page; absent on the last page. */
  next?: string | null;
  /** Reasons, in whole sentences, why sessions may be missing. */
  problems?: Array<string>;
}

/** One entry of a list of sessions. */
export interface SessionSummary {
  /** The session. */
  session_id: string;
  /** Absolute path of the workspace. */
  workspace: string;
  /** Time of creation in Unix seconds. */
  created_at: number;
  /** Time of the last event in Unix seconds. */
  updated_at: number;
  /** `seq` of the last event. */
  head: number;
  /** What the session is doing now; always present. */
  status?: "busy" | "idle" | "retry" | "waiting";
  /** Title in one line; empty if the session has none. */
  title?: string;
  /** Whether the session is archived. */
  archived?: boolean;
  /** Number of turns so far. */
  turns?: number;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
  /** Open requests, oldest first. */
  requests?: Array<Request>;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: number of turns shared with its parent. */
  parent_turns?: number;
  /** As in `Snapshot`. */
  context_tokens?: number;
  /** As in `Snapshot`. */
  context_window?: number;
  /** As in `Snapshot`. */
  branch?: string;
  /** As in `Snapshot`. */
  worktree?: string;
  /** As in `Snapshot`. Also absent if the latest turn ran before this field existed. */
  last_outcome?: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached" | null;
  /** Why the latest turn ended so; empty if not needed. */
  reason?: string;
  /** As in `Snapshot`. */
  last_line?: string;
  /** Number of files that the session has changed. */
  changed_files?: number;
  /** As in `Snapshot`. */
  added_lines?: number;
  /** As in `Snapshot`. */
  removed_lines?: number;
  /** Number of tasks of the plan that are completed. */
  plan_done?: number;
  /** Number of tasks of the plan. */
  plan_size?: number;
  /** Whether a turn has ended, or a request was opened, since a user saw the session. */
  unseen?: boolean;
  /** As in `Snapshot`. */
  owner_id?: string | null;
  /** Number of inputs in the queue. */
  queued?: number;
  /** When the running turn began, in Unix seconds; absent without a turn. */
  working_since?: number | null;
  /** Name and title of the call that runs now, shortened; empty if no call is running. */
  doing?: string;
  /** In a worktree: the same place in the checkout that it was made from. Else empty. */
  checkout?: string;
  /** In a worktree: whether its commits have landed, and there are no new ones. */
  landed?: boolean;
}

/** A question to the user; answered once, by any frontend. */
export interface Request {
  /** Id of the request; `request_id` in ops and events. */
  id: string;
  /** `approval`: whether a call is allowed to run. `doom_loop`: whether the turn should go on although the model keeps repeating a call. `question`: the model's own question. */
  kind: "approval" | "doom_loop" | "question";
  /** Summary in one line. */
  title: string;
  /** Id of the tool call that waits; empty if no call waits. */
  item_id?: string;
  /** The permission that the call needs, such as `bash`. */
  permission?: string;
  /** Texts to which permission rules apply: commands, paths, … */
  subjects?: Array<string>;
  /** Patterns that the answer `always` would allow for the rest of the session. */
  always?: Array<string>;
  /** Directory in which the answer `always_here` would allow the patterns in `always` for every session, by lasting rules. Empty if that answer is not possible. */
  always_here?: string;
  /** Everything that the user has to see; empty if the title says it all. */
  detail?: string;
  /** Suggested replies to a `question`. */
  choices?: Array<string>;
  /** Kind of text in `detail`, so that frontends need not guess it. */
  detail_kind?: "command" | "diff" | "text";
  /** Permissions that consent gives the call, too. */
  also?: Array<string>;
}

/** A page of the sessions that match a query. */
export interface SessionSearchResult {
  type: "session_search";
  /** Sessions, most recently active first. */
  found: Array<FoundSession>;
  /** `after` for the next page; absent on the last page. */
  next?: string | null;
  /** Number of sessions that are not indexed yet, for example after an upgrade; their texts may be missing. */
  not_indexed?: number;
}

/** A session with texts that match a query. */
export interface FoundSession {
  /** The session, as in `session_list`. */
  session: SessionSummary;
  /** Up to three matching texts: the title first, then the newest texts. */
  texts: Array<FoundText>;
}

/** A text of a session that matches a query. */
export interface FoundText {
  /** Kind of text. `files`: names of files that a step changed, separated by spaces. */
  kind: "answer" | "files" | "input" | "title";
  /** An excerpt in one line, in pieces that alternate: text outside a match, then a match, and so on. The first piece may be empty. */
  pieces: Array<string>;
  /** Time of the text in Unix seconds. A title has the session's time of creation. */
  time: number;
  /** `seq` of the event that has the text; 0 if the text is a title. */
  seq?: number;
  /** Id of the turn that the text belongs to; empty if there is none. */
  turn_id?: string;
  /** Id of the item that has the text; empty if the text is a title. */
  item_id?: string;
}

/** A page of the user's inputs. */
export interface InputHistoryResult {
  type: "input_history";
  /** The inputs, newest first. */
  inputs: Array<PastInput>;
  /** `after` for the next page; absent on the last page. */
  next?: string | null;
  /** Number of sessions that are not indexed yet, for example after an upgrade; their texts may be missing. */
  not_indexed?: number;
}

/** An earlier input of the user. */
export interface PastInput {
  /** Text of the input. */
  text: string;
  /** Time of the input in Unix seconds. */
  time: number;
  /** The session. */
  session_id: string;
}

/** The current state of a session. */
export interface SessionResult {
  type: "session";
  /** The state at `snapshot.seq`; `replay` has later events. */
  snapshot: Snapshot;
}

/** A session's state after the event `seq`. Mutable: `fold` applies the next event in place. */
export interface Snapshot {
  /** The session. */
  session_id: string;
  /** `seq` of the last event that the snapshot includes; 0 if it includes none. */
  seq?: number;
  /** Absolute path of the workspace. */
  workspace?: string;
  /** Settings of the next turn. */
  settings?: Settings;
  /** Title in one line; empty if the session has none. */
  title?: string;
  /** Whether the session is archived. */
  archived?: boolean;
  /** Time of creation in Unix seconds. */
  created_at?: number;
  /** Time of the last event in Unix seconds. */
  updated_at?: number;
  /** What the session is doing now. */
  status?: "busy" | "idle" | "retry" | "waiting";
  /** History, in the order in which items started. */
  items?: Array<UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch>;
  /** Ids of items that are still incomplete. */
  open_items?: Array<string>;
  /** Open requests, oldest first. */
  requests?: Array<Request>;
  /** Queued inputs, next one first. */
  queue?: Array<QueuedInput>;
  /** The model's plan. */
  plan?: Array<PlanEntry>;
  /** Background commands and sub-agents: all that still run, and the latest that have ended. */
  background?: Array<BackgroundCommand>;
  /** Ids of calls whose output is no longer sent to the model. */
  pruned?: Array<string>;
  /** Points at which turns and steps began, oldest first. */
  marks?: Array<Mark>;
  /** Reverts since the last turn, in order. They can still be undone. */
  reverted?: Array<Reverted>;
  /** Number of tokens in the first `context_items` items, as counted by the provider; after a compaction, an estimate of all, with `context_items` 0. It is 0 without a count, or after a revert. */
  context_tokens?: number;
  /** Number of items that `context_tokens` covers. */
  context_items?: number;
  /** Context window of the latest turn's model, in tokens; 0 before the first turn. */
  context_window?: number;
  /** Branch in the workspace, from the latest `turn_ended` that has one. */
  branch?: string;
  /** The running turn, if any. */
  turn?: OpenTurn | null;
  /** Outcome of the latest turn that used a model. Absent before the first such turn and after a revert. */
  last_outcome?: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached" | null;
  /** The last line of the model's latest message, shortened; empty if there is none. */
  last_line?: string;
  /** Files that the steps in history have changed, with the number of these steps. */
  changed_files?: Record<string, number>;
  /** Number of lines that these steps have added. */
  added_lines?: number;
  /** Number of lines that these steps have removed. */
  removed_lines?: number;
  /** `seq` of the latest `turn_ended` or `request_opened`; 0 if there is none. */
  wants_user?: number;
  /** `seq` up to which a user has seen the session. */
  seen?: number;
  /** Number of turns so far. */
  turns?: number;
  /** Number of model requests in all turns, not counting those of sub-agents. */
  steps?: number;
  /** Tokens of all turns, including titles, summaries and sub-agents. */
  usage?: Usage;
  /** Cost of `usage` in US dollars, without model requests of unknown price; absent if no price is known. */
  cost?: number | null;
  /** Number of model requests that `cost` omits, not counting those of sub-agents. */
  unpriced?: number;
  /** Total duration of all turns that have ended, in seconds. */
  worked_s?: number;
  /** Number of model requests by sub-agents. */
  delegated_steps?: number;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: number of turns shared with its parent. */
  parent_turns?: number;
  /** For a sub-agent: the session that it works for. */
  owner_id?: string | null;
  /** For a sub-agent: the tool call that started it. */
  owner_item_id?: string | null;
  /** Name of the worktree around the workspace; may be empty. */
  worktree?: string;
}

/** The user's input, which started a turn, steered a turn, or came from the queue. */
export interface UserMessage {
  type: "user_message";
  /** Id of the item. */
  id: string;
  /** The user's text. */
  text: string;
  /** Whether the input started a turn, steered a turn, or came from the queue. */
  delivery: "queue" | "start" | "steer";
  /** Images and PDF documents that the user attached. */
  images?: Array<Image>;
  /** Paths of the files that the user mentioned. */
  files?: Array<string>;
  /** Name of the frontend that sent the input; empty if unknown. */
  client?: string;
}

/** Text from the model. */
export interface AssistantMessage {
  type: "assistant_message";
  /** Id of the item. */
  id: string;
  /** The text so far; complete in `item_completed`. */
  text: string;
  /** `discarded`: ignore this text, because the model request was repeated. */
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
  /** `discarded`: ignore this text, because the model request was repeated. */
  state: "completed" | "discarded" | "interrupted" | "streaming";
  /** Data that must be sent back to the provider unchanged; meaningless to others. */
  opaque?: string;
}

/** A tool call and, once the call has ended, its result. */
export interface ToolCall {
  type: "tool_call";
  /** Id of the item. */
  id: string;
  /** The provider's id for the call. */
  call_id: string;
  /** Name of the tool. */
  name: string;
  /** JSON text, exactly as the model wrote it; may be invalid. */
  arguments: string;
  /** State of the call; `completed` and `error` are final. */
  state: "completed" | "error" | "pending" | "running";
  /** Whether the call only reads, or can also change something. */
  effect?: "read" | "write";
  /** One line about the call; empty until known. */
  title?: string;
  /** The result that the model gets; may be truncated. */
  output?: string;
  /** Kind of the error; present exactly when `state` is `error`. `invalid`: bad arguments. `denied`: no permission. `skipped`: never began. `aborted`: interrupted. `lost`: the daemon died during the call. */
  error_kind?: "aborted" | "denied" | "failed" | "invalid" | "lost" | "skipped" | null;
  /** Images in the result. */
  images?: Array<Image>;
  /** Unified diff of an edit. */
  diff?: string;
  /** File with the whole output, if `output` is truncated. */
  spill_path?: string;
  /** Exit status of a command; absent for other tools and after a timeout. */
  exit_status?: number | null;
  /** When the call began to run, in Unix seconds. Absent until then. */
  started_at?: number | null;
  /** Duration in seconds. Absent if the call has not ended, never began, or is `lost`. */
  duration_s?: number | null;
  /** Whether to ignore the call, because the response failed and the model request was repeated. */
  discarded?: boolean;
  /** Number of the model request that led to the call, counted from 0 in the session; -1 if the user made the call. Calls of one response have the same ordinal, and their results go back in one message. */
  ordinal?: number;
  /** Whether the user made the call: a `bash` call through the op `shell`, or a `task` call through input that calls a sub-agent. */
  by_user?: boolean;
  /** For a call by the user: whether it ran in a sandbox. */
  in_sandbox?: boolean;
  /** Whether the provider ran the call. If so, `output` is for people, and its length is limited. */
  by_provider?: boolean;
  /** The sub-agent that works on a `task` call. */
  sub_agent?: SubAgent | null;
  /** All arguments, as changed by a hook, in JSON text. Empty if no hook changed them. */
  rewritten_arguments?: string;
  /** Why the call is allowed to run. Empty until the call begins. Always empty if the call needs no permission, or if the user made the call. */
  allowed?: Array<Allowed>;
}

/** A sub-agent that a call of `task` started, with its usage for this call so far. */
export interface SubAgent {
  /** Id of the sub-agent's session. */
  session_id: string;
  /** Name of the agent. */
  agent: string;
  /** Number of model requests so far. */
  steps?: number;
  /** Tokens so far. */
  usage?: Usage;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
}

/** Tokens as counted by the provider; all 0 if the provider did not count them. */
export interface Usage {
  /** Tokens sent, including cached ones. */
  input_tokens?: number;
  /** Part of `input_tokens`: tokens read from the cache. */
  cached_input_tokens?: number;
  /** Tokens received, including reasoning. */
  output_tokens?: number;
  /** Part of `output_tokens`: tokens of reasoning. */
  reasoning_tokens?: number;
  /** Part of `input_tokens`: tokens written to the cache. */
  cache_write_tokens?: number;
}

/** Why a call is allowed to run. A call that needs several permissions has several reasons. */
export interface Allowed {
  /** `rule`: a configured or built-in rule. `grant`: a rule of the session, for example one that the answer `always` added. `lasting`: a rule that the answer `always_here` made. `reading`: the call seems only to read, and runs in a read-only sandbox. `sandbox`: nothing that the call can do in the sandbox needs approval. `approve`: the setting `approve` is `always`. `user`: the answer to a request. */
  by: "approve" | "grant" | "lasting" | "reading" | "rule" | "sandbox" | "user";
  /** The reason in whole sentences, for people. */
  reason: string;
  /** The permission that the call needs, such as `bash`. */
  permission?: string;
  /** Subject of the permission, such as a command. If there are several, the first one. */
  subject?: string;
  /** The rule that decided. Absent if no rule decided. */
  rule?: Rule | null;
}

/** A summary that replaces all items up to and including `replaces_upto`. */
export interface Compaction {
  type: "compaction";
  /** Id of the item. */
  id: string;
  /** The text that the model gets instead of the summarised items. */
  summary: string;
  /** Id of the last item that the summary replaces. */
  replaces_upto: string;
  /** Ids of user messages that the model still gets, verbatim, before the summary. */
  kept?: Array<string>;
}

/** A message from the daemon to the model, for example about an interrupt. */
export interface Notice {
  type: "notice";
  /** Id of the item. */
  id: string;
  /** Code of the notice, for programs. */
  code: string;
  /** The sentence for the model. */
  text: string;
}

/** The files that a step changed. If `tree_before` is empty, the changes are unknown. */
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
  /** The files in `files`, with details. */
  changes?: Array<FileChange>;
  /** Number of further changed files, which are not listed. */
  more?: number;
  /** The only places covered; empty if all are. */
  within?: Array<string>;
  /** Places that the patch omits, because they were reserved for background sub-agents. */
  without?: Array<string>;
  /** Places that reverts must leave as they are. */
  unknown?: Array<string>;
}

/** A file that was changed. */
export interface FileChange {
  /** Path relative to the workspace. */
  path: string;
  /** Kind of the change. */
  kind: "added" | "modified" | "removed";
  /** Number of lines; absent if not a text file. */
  added_lines?: number | null;
  /** Number of lines; absent if not a text file. */
  removed_lines?: number | null;
}

/** Accepted input that is not in history yet, because it waits for the next step or turn. */
export interface QueuedInput {
  /** Id of the input. Ops and answers call it `input_id`. */
  id: string;
  /** The user's text. */
  text: string;
  /** `steer`: taken at the turn's next step. `queue`: taken after the turn's other work. */
  delivery: "queue" | "start" | "steer";
  /** Images and PDF documents that the user attached. */
  images?: Array<Image>;
  /** Paths of the files that the user mentioned. */
  files?: Array<string>;
  /** Name of the frontend that sent the input; empty if unknown. */
  client?: string;
  /** Names of agents that work on this input as sub-agents before the model gets the input. */
  sub_agents?: Array<string>;
}

/** One line of the plan. */
export interface PlanEntry {
  /** The task. */
  text: string;
  /** State of the task. */
  state: "completed" | "in_progress" | "pending";
}

/** A command or a sub-agent that outlives its tool call. */
export interface BackgroundCommand {
  /** Id of the command. The op `interrupt` calls it `background_id`. */
  id: string;
  /** Command line; for a sub-agent, the agent's name and the task. */
  command: string;
  /** `lost`: the daemon died while the command was running, and the next daemon ended the command. */
  state: "exited" | "killed" | "lost" | "running";
  /** Time of the start in Unix seconds. */
  started_at: number;
  /** Id of the tool call that started the command. */
  item_id?: string;
  /** Path of the file that gets the output. */
  output_path?: string;
  /** Time of the end in Unix seconds; absent before the end. */
  ended_at?: number | null;
  /** Exit status; present if the command exited on its own. For a sub-agent: 0 if it completed, 1 if it did not. */
  exit_status?: number | null;
  /** For a sub-agent: its session and its usage. */
  sub_agent?: SubAgent | null;
}

/** A point to which history can be reverted: before a turn, or before one of its steps. */
export interface Mark {
  /** Id of the turn. */
  turn_id: string;
  /** `seq` of the last event before this point. */
  seq: number;
  /** Number of items before this point. */
  items: number;
  /** The step that begins here; 0 if the turn begins here. */
  step?: number;
  /** Name of the turn's agent. */
  agent?: string;
  /** Whether the agent is limited to reading. */
  read_only?: boolean;
  /** When the turn or step began, in Unix seconds. */
  at?: number;
  /** For a turn that has ended: the same duration as in `turn_ended`, in seconds. */
  duration_s?: number | null;
  /** Choices for the turn, as in `turn_started`; always absent for steps. */
  choices?: TurnChoices | null;
  /** The model of the turn, as `provider/model`. */
  model?: string;
  /** Outcome of a turn that has ended. */
  outcome?: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached" | null;
  /** Reason for the outcome, as in `turn_ended`. */
  error?: ErrorInfo | null;
}

/** Choices for one turn only. */
export interface TurnChoices {
  /** Choices that came with the input. */
  overrides?: TurnOverrides;
  /** Text that the input added to the system prompt. */
  system?: string;
}

/** Why something failed. */
export interface ErrorInfo {
  /** Code of the error, for programs; codes do not change. */
  code: string;
  /** What went wrong and what to do about it, for people. */
  message: string;
}

/** The part of history that a revert removed. */
export interface Reverted {
  /** Number of items that the revert kept. */
  position: number;
  /** The items that the revert removed. */
  items: Array<UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch>;
  /** The marks that the revert removed. Each says where a turn or step began. */
  marks: Array<Mark>;
  /** Files that the revert did not restore. */
  conflicts?: Array<string>;
}

/** The turn that is running, or that was running when the log ended. */
export interface OpenTurn {
  /** Id of the turn. */
  turn_id: string;
  /** Time of the start in Unix seconds. */
  started_at: number;
  /** The turn's context, as in `turn_started`. */
  context: TurnContextShown;
  /** The latest step's number; 0 before the first step. */
  step?: number;
  /** Whether the latest step is still running. */
  step_open?: boolean;
  /** Number of steps that have ended. */
  steps_ended?: number;
  /** Number of model requests by sub-agents. */
  delegated_steps?: number;
  /** Tokens so far, including sub-agents. */
  usage?: Usage;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
  /** The model's latest message. */
  last_message?: string;
  /** Number of times that a restarted daemon resumed the turn. */
  resumed?: number;
  /** Time in the turn when no daemon ran, in seconds. */
  away_s?: number;
}

/** The context of a turn for frontends: everything except secrets. */
export interface TurnContextShown {
  /** Absolute path of the workspace. */
  workspace: string;
  /** Name of the agent. */
  agent: string;
  /** Model of the turn, as `provider/model`. */
  model: string;
  /** Variant of the model; empty if there is none. */
  variant: string;
  /** What happens to a call if no permission rule decides. */
  approve: "always" | "ask" | "never";
  /** Maximum number of model requests in the turn. */
  max_steps: number;
  /** Names of the tools offered to the model. */
  tools: Array<string>;
  /** Context window of the model, in tokens. */
  context_window: number;
  /** Limit for this turn. */
  turn_budget?: Budget;
  /** Limit for the whole session. */
  session_budget?: Budget;
  /** JSON Schema that the final message must match. */
  output_schema?: Record<string, unknown> | null;
  /** System prompt, exactly as the model gets it. */
  system_prompt?: string;
  /** What commands are allowed to do. */
  sandbox?: "full_access" | "read_only" | "workspace_write";
  /** How many queued inputs a turn takes at a time: one, or all. */
  follow_ups?: "all" | "one_at_a_time";
  /** Whether the agent is limited to reading, whatever the rules say. */
  read_only?: boolean;
  /** For a sub-agent whose `task` call has `paths`: the only places that the sub-agent is allowed to change. */
  write_paths?: Array<string> | null;
}

/** A session's events from `after` + 1 to `upto`. */
export interface ReplayResult {
  type: "replay";
  /** The events, in order. Deltas of items completed long ago may be missing. */
  events: Array<Event>;
  /** The answer covers all events up to this `seq`. */
  upto: number;
  /** `seq` of the last event in the log. */
  head: number;
  /** Names of the other frontends that have the session open now. */
  followers?: Array<string>;
}

/** One numbered event of a session. */
export interface Event {
  /** The event's number in the session: 1, 2, 3 … without gaps. */
  seq: number;
  /** The session. */
  session_id: string;
  /** Time of the event in Unix seconds. */
  time: number;
  /** What happened. */
  body: SessionCreated | SessionConfigured | SessionTitled | SessionArchived | SessionSeen | StatusChanged | QueueChanged | TurnStarted | TurnEnded | StepStarted | StepEnded | ItemStarted | ItemDelta | ItemCompleted | ToolCallUpdated | RequestOpened | RequestResolved | PlanUpdated | BackgroundChanged | HistoryCompacted | HistoryReverted | WarningRaised | ErrorRaised;
  /** Id of the turn that the event belongs to, if any. */
  turn_id?: string | null;
  /** The submission that caused the event, if any. */
  submission_id?: string | null;
}

/** The first event of a session. */
export interface SessionCreated {
  type: "session_created";
  /** Absolute path of the workspace. */
  workspace: string;
  /** The initial settings. */
  settings: Settings;
  /** For a fork: the session that it branches from. */
  parent_id?: string | null;
  /** For a fork: `seq` of the last shared event. */
  parent_seq?: number | null;
  /** For a sub-agent: the session that it works for. */
  owner_id?: string | null;
  /** For a sub-agent: the call that started it. */
  owner_item_id?: string | null;
  /** Name of the worktree around the workspace; may be empty. */
  worktree?: string;
}

/** The settings or the workspace have changed. */
export interface SessionConfigured {
  type: "session_configured";
  /** All settings, as they apply from the next turn on. */
  settings: Settings;
  /** The new workspace; absent if it is the same. */
  workspace?: string | null;
}

/** The session has a new title. */
export interface SessionTitled {
  type: "session_titled";
  /** The new title, in one line. */
  title: string;
  /** Tokens that a model used to write the title. */
  usage?: Usage;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
}

/** The session was archived or taken out of the archive. */
export interface SessionArchived {
  type: "session_archived";
  /** Whether the session is archived now. */
  archived: boolean;
}

/** A user has seen the session, in any frontend. */
export interface SessionSeen {
  type: "session_seen";
  /** `seq` of the last event that the user has seen. */
  until: number;
}

/** The session is now idle, busy, about to retry a model request, or waiting for an answer. */
export interface StatusChanged {
  type: "status_changed";
  /** What the session is doing now. */
  status: "busy" | "idle" | "retry" | "waiting";
  /** For `retry`: the next attempt's number, 2 or more. */
  attempt?: number | null;
  /** For `retry`: maximum number of attempts; absent if only the time is limited. */
  limit?: number | null;
  /** For `retry`: seconds until the next attempt. */
  delay_s?: number | null;
  /** For `retry`: why the last attempt failed. For other states: the present activity. */
  cause?: string;
  /** For `waiting`: the open request. */
  request_id?: string | null;
}

/** The queue has changed. */
export interface QueueChanged {
  type: "queue_changed";
  /** All queued inputs, next one first. */
  queue: Array<QueuedInput>;
  /** Whether the inputs wait until `turn_continue`, `promote` or new input starts a turn. */
  waits?: boolean;
}

/** A turn begins. */
export interface TurnStarted {
  type: "turn_started";
  /** Context that is the same for the whole turn. */
  context: TurnContextShown;
  /** Choices for this turn; `turn_continue` uses them again. Absent if the turn asks no model for an answer. */
  choices?: TurnChoices | null;
}

/** A turn has ended. None of its processes, tasks or requests is left. */
export interface TurnEnded {
  type: "turn_ended";
  /** How the turn ended. */
  outcome: "blocked" | "completed" | "failed" | "interrupted" | "limit_reached";
  /** Number of model requests, not counting those of sub-agents. */
  steps: number;
  /** Tokens of the turn, including sub-agents. */
  usage: Usage;
  /** Duration by a monotonic clock, in seconds, not counting time when no daemon ran. */
  duration_s: number;
  /** The model's final message; empty if there is none. */
  last_message?: string;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
  /** Explains `outcome`; absent if not needed. */
  error?: ErrorInfo | null;
  /** Files that the turn changed; their line counts are sums over the turn's patches. */
  files?: Array<FileChange>;
  /** Whether files that are not listed may have changed, too. */
  more_files?: boolean;
  /** Number of inputs that wait until `turn_continue`, `promote` or new input starts a turn. */
  queued?: number;
  /** Tokens in the history, by the provider's last count; 0 if there is no count. */
  context_tokens?: number;
  /** Context window of the model in tokens; 0 if unknown. */
  context_window?: number;
  /** The branch, or `commit …` if none is checked out; empty without a repository. */
  branch?: string;
}

/** A step begins. The daemon now sends the step's model request. */
export interface StepStarted {
  type: "step_started";
  /** The step's number in the turn, counting from 1. */
  step: number;
}

/** The step's response and its tool calls have ended. */
export interface StepEnded {
  type: "step_ended";
  /** The step's number in the turn, counting from 1. */
  step: number;
  /** Why the response ended. */
  finish_reason: "content_filter" | "error" | "interrupted" | "length" | "paused" | "stop" | "tool_calls" | "unknown";
  /** Tokens of the model request and its response. */
  usage: Usage;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
  /** Seconds until the model's first output; absent if there was no output. */
  time_to_first_token_s?: number | null;
}

/** A new item. In history, items have the order of their `item_started` events. */
export interface ItemStarted {
  type: "item_started";
  /** The item, with its content so far. */
  item: UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch;
}

/** The next piece of an item's text, arguments or output. */
export interface ItemDelta {
  type: "item_delta";
  /** Id of an open item. */
  item_id: string;
  /** The part of the item to which the delta is appended. */
  channel: "arguments" | "output" | "text";
  /** The next piece of text; the log may join several pieces into one. */
  delta: string;
  /** The item's `type`; absent in logs of older versions. */
  item_type?: "assistant_message" | "reasoning" | "tool_call" | null;
}

/** An item is complete. Of parallel tool calls, the call that ends first is completed first. */
export interface ItemCompleted {
  type: "item_completed";
  /** The whole item, which replaces the text from deltas. */
  item: UserMessage | AssistantMessage | Reasoning | ToolCall | Compaction | Notice | Patch;
}

/** A tool call has a new state. The final state comes before `item_completed`. */
export interface ToolCallUpdated {
  type: "tool_call_updated";
  /** Id of the tool call. */
  item_id: string;
  /** The new state. */
  state: "completed" | "error" | "pending" | "running";
  /** Kind of the error; present exactly when `state` is `error`. */
  error_kind?: "aborted" | "denied" | "failed" | "invalid" | "lost" | "skipped" | null;
  /** The new title. Empty if unchanged. */
  title?: string;
  /** The sub-agent and its totals; sent when the sub-agent begins, and after each of its steps. */
  sub_agent?: SubAgent | null;
  /** All arguments, as changed by a hook, in JSON text. Empty if no hook changed them. */
  rewritten_arguments?: string;
  /** Whether the call only reads, or can also write. Sent when the call begins to run. */
  effect?: "read" | "write" | null;
  /** Reasons why the call is allowed to run. Sent when the call begins to run. Empty in updates that do not change the reasons. */
  allowed?: Array<Allowed>;
}

/** The turn, or one of its calls, waits for the user's answer. */
export interface RequestOpened {
  type: "request_opened";
  /** The request to answer. */
  request: Request;
}

/** A request was answered, or no longer needs an answer. */
export interface RequestResolved {
  type: "request_resolved";
  /** Id of the request. */
  request_id: string;
  /** The answer; `cancelled` if none is needed any more. */
  resolution: "always" | "always_here" | "answer" | "cancelled" | "once" | "reject";
  /** Name of the frontend that answered; empty if a rule decided. */
  by?: string;
  /** For `answer`: the reply. For `reject`: the reason, if any. */
  text?: string;
}

/** The model has changed its plan. */
export interface PlanUpdated {
  type: "plan_updated";
  /** The whole plan. */
  plan: Array<PlanEntry>;
}

/** The session's background commands or sub-agents have changed. */
export interface BackgroundChanged {
  type: "background_changed";
  /** Background commands and sub-agents: all that still run, and the latest that have ended. */
  background: Array<BackgroundCommand>;
}

/** The model now gets a shorter history. The log still contains everything. */
export interface HistoryCompacted {
  type: "history_compacted";
  /** Estimated size of history before this event, in tokens. */
  tokens_before: number;
  /** Estimated size of history after this event, in tokens. */
  tokens_after: number;
  /** Id of the compaction item that replaces earlier history; absent after pruning. */
  item_id?: string | null;
  /** Ids of calls whose output is no longer sent to the model. */
  pruned?: Array<string>;
  /** Tokens that a model used to write the summary. */
  usage?: Usage;
  /** Cost in US dollars. Absent if the price is unknown. */
  cost?: number | null;
}

/** A revert has restored history and files, or has been undone. */
export interface HistoryReverted {
  type: "history_reverted";
  /** For a revert: `seq` of the event that history went back to. */
  to_seq: number;
  /** Whether this event undoes the last revert, so that the removed history is back. */
  undone?: boolean;
  /** Files that were not restored. */
  conflicts?: Array<string>;
  /** Id of the turn that was reverted; empty if `undone`. */
  before_turn?: string;
  /** The first step that was reverted; 0 for the whole turn. */
  before_step?: number;
  /** Number of files that were restored or removed. */
  restored?: number;
}

/** A warning for the user. Work continues. */
export interface WarningRaised {
  type: "warning";
  /** Code of the warning, for programs. */
  code: string;
  /** What happened, in whole sentences for people. */
  message: string;
  /** Always false. */
  fatal?: boolean;
}

/** Something failed. */
export interface ErrorRaised {
  type: "error";
  /** Code of the error, for programs. */
  code: string;
  /** What happened, in whole sentences for people. */
  message: string;
  /** Whether turns keep failing until the user acts. */
  fatal?: boolean;
}

/** A session's changes to files. */
export interface SessionDiffResult {
  type: "session_diff";
  /** The changed files. */
  files: Array<FileChange>;
  /** Unified diff, without the content of protected files. */
  diff: string;
  /** Whether the list or the diff was too long and has been cut. */
  cut?: boolean;
  /** Whether some changes may be unknown and thus missing. */
  partial?: boolean;
}

/** The effect of a revert on files. Paths are relative to the workspace. */
export interface RevertResult {
  type: "revert";
  /** Files that were restored or removed. */
  files?: Array<string>;
  /** Files that can't be restored and stay as is. */
  conflicts?: Array<string>;
  /** Whether some changes may be unknown and not reverted. */
  partial?: boolean;
  /** Sessions of background sub-agents whose changes stay; revert each one separately. */
  sub_agents?: Array<string>;
  /** Those of `files` that were removed. */
  removed?: Array<string>;
  /** Conflicts that no snapshot contains. */
  without_snapshot?: Array<string>;
  /** Why conflicts could not be written, by path. */
  problems?: Record<string, string>;
}

/** A turn has started. */
export interface Started {
  type: "started";
  /** Id of the new turn. */
  turn_id: string;
}

/** The running turn gets the input before its next model request. If the turn ends first, the input is queued. */
export interface Steered {
  type: "steered";
  /** Id of the running turn. */
  turn_id: string;
  /** Id of the input while it waits. */
  input_id: string;
}

/** The input waits in the queue. */
export interface Queued {
  type: "queued";
  /** Id of the queued input. */
  input_id: string;
  /** Position in the queue; 0 is next. */
  position: number;
}

/** The models, agents, tools, commands and servers. */
export interface CatalogResult {
  type: "catalog";
  /** Models, the default model first. */
  models: Array<ModelSummary>;
  /** Tools offered to models. */
  tools: Array<ToolSummary>;
  /** Agents that can be chosen. */
  agents: Array<AgentSummary>;
  /** Custom commands. */
  commands?: Array<CommandSummary>;
  /** MCP servers. */
  servers?: Array<ServerSummary>;
  /** Language servers that the daemon can start. */
  language_servers?: Array<LanguageServerSummary>;
  /** The sandbox of commands. */
  sandbox?: SandboxSummary | null;
  /** The providers of the models, sorted by name. */
  providers?: Array<ProviderSummary>;
  /** If requested: all well-known providers, even without a key; then local servers. */
  offers?: Array<ProviderOffer>;
  /** Why the configuration is not in effect; empty if it is. */
  problem?: string;
}

/** A model. */
export interface ModelSummary {
  /** `provider/model`. */
  name: string;
  /** The API of the model's provider. */
  api: string;
  /** Whether this model is used if none is chosen. */
  default?: boolean;
  /** Size of the context window in tokens; absent if unknown. */
  context_window?: number | null;
  /** Why this entry can't be used now; empty if it can be used. */
  problem?: string;
  /** Longest output in tokens; absent if unknown. */
  max_output?: number | null;
  /** Prices of the model; absent if unknown. */
  price?: Price | null;
  /** Names of variants that a turn can choose. */
  variants?: Array<string>;
  /** Whether the model is known only from the provider's list. */
  listed?: boolean;
  /** Limits last reported by the provider; empty if none. */
  rate_limits?: Array<RateLimit>;
}

/** Prices of a model in US dollars per million tokens. */
export interface Price {
  /** Input tokens. */
  input: number;
  /** Output tokens, including reasoning. */
  output: number;
  /** Tokens read from a cache. Default: the price of `input`. */
  cached_input?: number | null;
  /** Tokens written to a cache. Default: the price of `input`. */
  cache_write?: number | null;
  tiers?: Array<PriceTier>;
}

/** Prices for requests with long input, in US dollars per million tokens. */
export interface PriceTier {
  /** The tier applies if the request has more input tokens than this. */
  above: number;
  /** Input tokens. */
  input: number;
  /** Output tokens, including reasoning. */
  output: number;
  /** Tokens read from a cache. Default: the price of `input`. */
  cached_input?: number | null;
  /** Tokens written to a cache. Default: the price of `input`. */
  cache_write?: number | null;
}

/** A provider's limit on the use of a model, as of the last response. */
export interface RateLimit {
  /** The provider's name for the unit: `requests`, `tokens`, … */
  name: string;
  /** Number of units that can still be used before the reset. */
  remaining: number;
  /** Units available after a reset. */
  limit?: number | null;
  /** Time of the reset, in Unix seconds. */
  resets_at?: number | null;
}

/** A tool. */
export interface ToolSummary {
  /** Name by which the model calls the tool. */
  name: string;
  /** What a call does: `read`, `write`, `command` or `agent`. */
  effect: string;
  /** Description that the model gets. */
  description: string;
  /** The tool's MCP server; empty for built-in tools. */
  server?: string;
}

/** An agent: a prompt, permissions and a model under one name. */
export interface AgentSummary {
  /** Name by which the agent is chosen. */
  name: string;
  /** Description in one line; may be empty. */
  description?: string;
  /** Model of the agent. Default: the session's model. */
  model?: string | null;
  /** Whether the agent is limited to reading. */
  read_only?: boolean;
  /** Why this entry can't be used now; empty if it can be used. */
  problem?: string;
  /** Variant of the model. Default: the configured one. */
  variant?: string | null;
  /** Steps per turn. Default: the configured limit. */
  max_steps?: number | null;
}

/** A custom command. */
export interface CommandSummary {
  /** Name of the command, which is typed as `/name`. */
  name: string;
  /** Description in one line; may be empty. */
  description?: string;
  /** Agent of the turn. Default: the session's agent. */
  agent?: string | null;
  /** Model of the turn. Default: the session's model. */
  model?: string | null;
  /** Why this entry can't be used now; empty if it can be used. */
  problem?: string;
  /** Whether `agent` does the work as a sub-agent. */
  subtask?: boolean;
}

/** An MCP server. */
export interface ServerSummary {
  /** Name in the configuration. */
  name: string;
  /** `idle`: not needed yet. `ended`: no longer running; the next call starts the server again. `failed`: could not be started. `needs_login`: use the op `mcp_login`. */
  state: "disabled" | "ended" | "failed" | "idle" | "needs_login" | "starting" | "up";
  /** Number of the server's tools. */
  tools?: number;
  /** Why the server is not `up`; empty if there is no problem. */
  problem?: string;
}

/** A language server that the daemon can start. */
export interface LanguageServerSummary {
  /** Name in the configuration. */
  name: string;
  /** Languages that the server checks. */
  languages: Array<string>;
  /** Path of the program; empty if it is not installed. */
  program?: string;
  /** Whether the configuration names this server. If it names none for a file, one server checks the file: the first in this list that is installed and supports the language. */
  chosen?: boolean;
  /** Number of directories in which the server runs. */
  running?: number;
  /** Why a process failed; empty if no process has failed. */
  problem?: string;
}

/** The sandbox in which commands run. */
export interface SandboxSummary {
  /** What commands are allowed to do by default. */
  mode: "full_access" | "read_only" | "workspace_write";
  /** Whether commands are allowed to use the network. */
  network?: boolean;
  /** The mechanism, such as `bubblewrap`; empty if none works. */
  name?: string;
  /** Why no mechanism works (so every command needs approval); empty if one works. */
  problem?: string;
  /** What this mechanism can't enforce; may be empty. */
  limits?: string;
  /** Why no better mechanism works; empty if `name` is the best. */
  instead?: string;
}

/** A model provider that is in use. */
export interface ProviderSummary {
  /** The part of a model's name before the slash. */
  name: string;
  /** The API that the provider speaks. */
  api: string;
  /** Address of the provider's server; empty if there is none. */
  base_url?: string;
  /** Source of the key, such as `the variable X`; empty if the provider needs no key. */
  key?: string;
  /** Whether the default model belongs to this provider. */
  default?: boolean;
  /** Whether the provider answered; absent if the op did not ask it. */
  answers?: boolean | null;
  /** Why this entry can't be used now; empty if it can be used. */
  problem?: string;
}

/** A provider that could be configured: an account, a well-known one, or a local server. */
export interface ProviderOffer {
  /** Suggested name for the provider. */
  name: string;
  /** The API that the provider speaks. */
  api: string;
  /** Address of the provider's server. */
  base_url: string;
  /** The provider's models, the best choice first. */
  models: Array<string>;
  /** The well-known variable for the key; empty for a server found on this machine. */
  api_key_env?: string;
  /** The account with which the user is logged in, if any. */
  account?: string;
}

/** The definitions in a workspace's `.tiller`. They have no effect until trusted. */
export interface ProjectResult {
  type: "project";
  /** Absolute path of the workspace. */
  workspace: string;
  /** Digest of the content of `files`; empty if there are no files. */
  digest: string;
  /** Files with the definitions, relative to the workspace. */
  files: Array<string>;
  /** Whether the user trusts the content with this digest. */
  trusted: boolean;
  /** Why the files can't be trusted; empty if they can. */
  problem?: string;
  /** Hooks that the files define. */
  hooks?: Array<HookSummary>;
}

/** A hook: a command that runs at a certain point of each turn. */
export interface HookSummary {
  /** The point of a turn at which the hook runs. */
  on: string;
  /** The hook's command line, for the shell. */
  command: string;
  /** Pattern of tool names, for hooks that run at tool calls. */
  tool?: string;
  /** The hook's name in messages; may be empty. */
  name?: string;
}

/** The state of a login to an MCP server. */
export interface McpLoginResult {
  type: "mcp_login";
  /** `waiting`: the user has to open `url`. `done`: the login is stored. */
  state: "done" | "logged_out" | "waiting";
  /** The address that the user opens in a browser, while `waiting`. */
  url?: string;
}

/** The accounts, and the state of a login. */
export interface AccountsResult {
  type: "accounts";
  /** For `list`: all accounts. Otherwise the account named. */
  accounts: Array<AccountSummary>;
  /** For `begin`: the address that the user opens in a browser. */
  url?: string;
  /** What the user should know, such as that the provider did not confirm a logout. */
  warning?: string;
}

/** A login of the user at a model provider. No token is ever part of the protocol. */
export interface AccountSummary {
  /** Name of the account, and of the provider that uses it. */
  name: string;
  /** `ended`: the provider has ended the login. `not_permitted`: the login does not permit the use of the plan. In each state but `signed_in`, the user has to log in. */
  state: "ended" | "not_permitted" | "signed_in" | "signed_out";
  /** Address of the account at the provider, if known. */
  email?: string;
  /** The first model of the account's list, as `provider/model`; empty if unknown. */
  model?: string;
}

/** The log was copied. */
export interface BackupResult {
  type: "backup";
  /** The path of the copy. */
  path: string;
  /** The size of the copy. */
  size_bytes: number;
}

/** The lasting rules, by directory. If the op names a session, that session's rules follow. */
export interface RulesResult {
  type: "rules";
  /** The rules. Later rules take precedence. */
  rules: Array<RuleSummary>;
}

/** A permission rule that was made by an answer or a frontend. */
export interface RuleSummary {
  /** Id of the rule, for `rule_revoke`. */
  id: string;
  /** The permission that the rule decides, such as `bash`. */
  permission: string;
  /** A glob that matches subjects, such as commands or paths. */
  pattern: string;
  /** The rule's decision; a lasting rule always allows. */
  action?: "allow" | "ask" | "deny";
  /** Directory of a lasting rule; empty for a session's rule. */
  workspace?: string;
  /** Session that has the rule; empty for a lasting rule. */
  session_id?: string;
  /** When the rule was made, in Unix seconds; absent if unknown. */
  granted_at?: number | null;
  /** Name of the frontend that made the rule; empty if unknown. */
  by?: string;
}

/** The worktrees. */
export interface WorktreeListResult {
  type: "worktree_list";
  /** Worktrees, oldest first. */
  worktrees: Array<WorktreeSummary>;
}

/** A worktree. */
export interface WorktreeSummary {
  /** Id of the worktree. */
  id: string;
  /** Name of the worktree and of its branch. */
  name: string;
  /** Absolute path of its top. */
  path: string;
  /** Absolute path of the checkout that it was made from. */
  checkout: string;
  /** `ready`: there. `removed`: kept until `kept_until`, and can be restored. `missing`: somebody else has removed its directory. */
  state: "missing" | "ready" | "removed";
  /** Branch that it was made from and lands on; empty if none was checked out. */
  base_branch?: string;
  /** Number of its commits that `base_branch` does not have; 0 once they have landed. */
  ahead?: number;
  /** Number of files with changes that are in no commit. */
  changed_files?: number;
  /** Ids of the sessions that work in it. */
  sessions?: Array<string>;
  /** What a removed worktree takes on the disk. */
  disk_bytes?: number;
  /** When a removed worktree is deleted for good, in Unix seconds. */
  kept_until?: number | null;
  /** Why its branch can't be moved or read; empty if it can. */
  problem?: string;
}

/** A worktree has landed. */
export interface WorktreeLanded {
  type: "worktree_landed";
  /** Commit to which the branch has moved. */
  commit: string;
  /** The branch. */
  onto: string;
  /** Where the branch is checked out, and was updated; empty if nowhere. */
  checkout?: string;
  /** Paths of submodules in `checkout` that `git submodule update` must bring up to date. */
  submodules?: Array<string>;
}

/** A worktree that was removed or restored. */
export interface WorktreeResult {
  type: "worktree";
  /** The worktree. */
  worktree: WorktreeSummary;
}

/** The status of the daemon's process. */
export interface DaemonStatusResult {
  type: "daemon_status";
  /** Version of the daemon's program, such as `1.2.0`. */
  daemon_version: string;
  /** The daemon's process id. */
  pid: number;
  /** Seconds since the daemon started. */
  uptime_s: number;
  /** Path of the database with all sessions. */
  log_path: string;
  /** Number of sessions in the log. */
  sessions: number;
  /** Number of sessions in memory. */
  sessions_loaded: number;
  /** Number of running turns. */
  turns_running: number;
  /** Resident memory; 0 if the system does not report it. */
  rss_bytes?: number;
  /** Whether the daemon is about to end. */
  draining?: boolean;
  /** Problems with the log, in whole sentences. */
  problems?: Array<string>;
  /** Directory of the recordings; empty if responses are not recorded. */
  recordings_path?: string;
}

/** The op had no effect. */
export interface Rejected {
  type: "rejected";
  /** Id of the submission; empty if the id was unreadable. */
  submission_id: string;
  /** The reason, for programs. */
  code: "already_resolved" | "bad_message" | "busy" | "conflict" | "empty_input" | "expected_turn_mismatch" | "forbidden" | "internal" | "invalid_settings" | "no_active_turn" | "not_found" | "overloaded" | "shutting_down" | "too_large" | "turn_not_steerable" | "unauthorized" | "unavailable" | "unsupported_protocol" | "worktree";
  /** The reason in whole sentences, for people. */
  message: string;
  /** Details for `code`, such as the rejected input. */
  data?: Record<string, unknown>;
}

/** Asks a lender for a file. The topic is `lender/`, followed by the lender's id. The lender should answer with `lent_file` within 2 seconds. If it does not, the file on disk is used, and the lender is not asked again until it lends again. */
export interface FileWanted {
  /** Id to repeat in `lent_file`. */
  question_id: string;
  /** Id of the session. */
  session_id: string;
  /** Absolute path of a file in the session's workspace. */
  path: string;
}

/** A line to `tiller rpc`, with exactly one of `submit`, `follow` and `unfollow`. */
export interface RpcInput {
  /** Submit an op; the `answer` or an `error` follows. Ops on the same session are submitted in order, each after the previous op was answered. */
  submit?: RpcSubmission | null;
  /** Send the events of this session; `daemon` means life-cycle events of all sessions. */
  follow?: string | null;
  /** For `follow`: start after the event with this `seq`. */
  after?: number;
  /** Stop sending the events of this session; a line with `unfollowed` confirms the stop. */
  unfollow?: string | null;
  /** Value that is sent back with `answer`, `error` and `unfollowed`. */
  tag?: string | number | null;
}

/** A submission without the token, which `tiller rpc` adds. */
export interface RpcSubmission {
  /** The op to submit. */
  op: Hello | SessionCreate | SessionList | SessionSearch | InputHistory | SessionGet | SessionDiff | SessionConfigure | SessionFork | SessionArchive | SessionMarkSeen | SessionDelete | SessionLend | LentFile | Replay | UserInput | QueueEdit | TurnContinue | Interrupt | Answer | Compact | Revert | Unrevert | Shell | Catalog | Project | McpLogin | Accounts | RulesList | RuleRevoke | WorktreeList | WorktreeLand | WorktreeRemove | WorktreeRestore | DaemonStatus | Backup | Shutdown;
  /** Id as in `Submission`. If the same id is sent again, even by another process, the answer is the same. Default: a new id. */
  id?: string | null;
  /** Name of the frontend. Default: the name given by `tiller rpc --name`. */
  client?: string;
}

/** A line from `tiller rpc`, with exactly one field apart from `hello`, `message` and `tag`. */
export interface RpcOutput {
  /** `connected`: sent in the first line, and when the daemon is back. `reconnecting`: sent when there is no daemon. */
  state?: "connected" | "reconnecting" | null;
  /** With `connected`: the daemon's greeting. */
  hello?: HelloResult | null;
  /** With `reconnecting`: why reconnecting fails, if it does. */
  message?: string;
  /** The answer to a submission. */
  answer?: Accepted | Rejected | null;
  /** The next event of a followed session. Each event comes once, in order. */
  event?: Event | null;
  /** A life-cycle event of any session, if `daemon` is followed. Some events may be missing, so list the sessions again after `connected`, and from time to time. */
  notification?: Event | null;
  /** Sent once after `follow`, when all events so far have been sent. Later events are live. */
  caught_up?: CaughtUp | null;
  /** The other frontends that have a followed session open. Sent at once if there are any, and then at each change. */
  followers?: Followers | null;
  /** Id of a session whose events start over, because the daemon has a new log. Forget the session's events; all events are sent again. */
  started_over?: string | null;
  /** A session that is no longer followed; none of its events comes after this line. */
  unfollowed?: Unfollowed | null;
  /** A question to a lender whose `session_lend` with `reads_files` was submitted through this process. Answer with `lent_file`. */
  file_wanted?: FileWanted | null;
  /** Why an input line has no answer. */
  error?: RpcError | null;
  /** The `tag` of the input line that this line answers. */
  tag?: string | number | null;
}

/** How far a session's events have been sent. */
export interface CaughtUp {
  /** The session. */
  session_id: string;
  /** `seq` of the last event so far. */
  seq: number;
}

/** The other frontends that have a followed session open. */
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
  /** Why the session is no longer followed, for example because it does not exist; empty after `unfollow`. */
  message?: string;
}

/** An input line that could not be carried out, or whose answer is unknown. */
export interface RpcError {
  /** The input line, counted from 1. */
  line: number;
  /** The reason in a sentence, for people. */
  message: string;
  /** Id of an op that was not answered in time and may still take effect. Submit it again with this `id` to get its answer. */
  submission_id?: string;
}
