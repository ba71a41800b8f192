// A whole session through the TypeScript SDK's client; prints what it saw as one JSON object.
// argv: the workspace, the model, an image in base64, then the command that speaks ACP.
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import * as acp from "@agentclientprotocol/sdk";

const [workspace, model, image, command, ...args] = process.argv.slice(2);
const report = { updates: [], asked: [], errors: [] };
const say = (text) => [{ type: "text", text }];

function start() {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  return { child, ended, stream };
}

function connect(stream, updates, onUpdate, work) {
  return acp
    .client({ name: "sdk" })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      report.asked.push(params);
      return { outcome: { outcome: "selected", optionId: "once" } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      updates.push(params.update);
      onUpdate(params.update);
    })
    .connectWith(stream, work);
}

async function refused(request) {
  try {
    await request;
    report.errors.push(null);
  } catch (error) {
    report.errors.push({ code: error.code, message: error.message });
  }
}

async function firstEditor(agent) {
  report.initialize = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  await refused(agent.request(acp.methods.agent.authenticate, { methodId: "none" }));
  const open = { cwd: workspace, mcpServers: [], additionalDirectories: [dirname(workspace)] };
  const made = await agent.request(acp.methods.agent.session.new, open);
  const sessionId = (report.sessionId = made.sessionId);
  report.modes = made.modes;
  const option = { sessionId, configId: "model", value: model };
  report.options = await agent.request(acp.methods.agent.session.setConfigOption, option);
  await agent.request(acp.methods.agent.session.setMode, { sessionId, modeId: "build" });

  const prompt = { sessionId, prompt: say("greet shorter") };
  const turn = agent.request(acp.methods.agent.session.prompt, prompt);
  await seen.gate;
  report.steered = await agent.request("_tiller/steer", { sessionId, prompt: say("to the left") });
  report.queued = await agent.request("_tiller/queue", { sessionId, prompt: say("not at all") });
  const { inputId } = report.queued;
  await agent.request("_tiller/queue_edit", { sessionId, inputId, action: "remove" });
  await writeFile(join(workspace, "gate"), "");
  report.turn = await turn;

  const uri = pathToFileURL(join(workspace, "greeting.txt")).href;
  const attached = [
    { type: "resource_link", uri, name: "greeting.txt" },
    { type: "resource", resource: { uri, text: "an open buffer" } },
    { type: "image", mimeType: "image/png", data: image },
  ];
  const hanging = { sessionId, prompt: [...say("and now "), ...attached] };
  const cancelled = agent.request(acp.methods.agent.session.prompt, hanging);
  await seen.hanging;
  await agent.notify(acp.methods.agent.session.cancel, { sessionId });
  report.cancelled = await cancelled;

  const audio = [{ type: "audio", mimeType: "audio/wav", data: "AAAA" }];
  await refused(agent.request(acp.methods.agent.session.prompt, { sessionId, prompt: audio }));
  report.list = await agent.request(acp.methods.agent.session.list, { cwd: workspace });
}

async function secondEditor(agent) {
  const { sessionId } = report;
  await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION });
  const open = { sessionId, cwd: workspace, mcpServers: [] };
  report.load = await agent.request(acp.methods.agent.session.load, open);
  report.resume = await agent.request(acp.methods.agent.session.resume, open);
  report.fork = await agent.request("session/fork", open);
  await agent.request(acp.methods.agent.session.close, { sessionId });
  await agent.request(acp.methods.agent.session.delete, { sessionId: report.fork.sessionId });
  await refused(agent.request(acp.methods.agent.session.load, { ...open, sessionId: "none" }));
}

const seen = {};
const found = {};
for (const name of ["gate", "hanging"]) {
  seen[name] = new Promise((resolve) => (found[name] = resolve));
}
function watch(update) {
  if (update.kind === "execute" || update.title === "cat gate") {
    if (update.status === "in_progress") found.gate();
  }
  if (update.content?.text === "so") found.hanging();
}

const first = start();
await connect(first.stream, report.updates, watch, firstEditor);
first.child.stdin.end();
report.status = await first.ended;

report.loaded = [];
const second = start();
await connect(second.stream, report.loaded, () => {}, secondEditor);
second.child.stdin.end();
await second.ended;
process.stdout.write(JSON.stringify(report));
