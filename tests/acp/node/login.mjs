// Logins through the TypeScript SDK's client; prints how each request ended as one JSON object.
// argv: the workspace, the login service, a fifo from which the addresses for the browser come,
// then the command that speaks ACP.
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [workspace, service, fifo, command, ...args] = process.argv.slice(2);
const { agent: methods } = acp.methods;
const report = { said: "" };

const opened = async () => (await readFile(fifo, "utf8")).trim();
const behave = (changes) =>
  fetch(`${service}/_control`, {
    method: "POST",
    body: JSON.stringify({ resource: process.env.RESOURCE, ...changes }),
  });

// Follows all redirects with their cookies, as a browser does; returns the text of the last page.
async function browse(url) {
  const cookies = new Map();
  for (;;) {
    const cookie = [...cookies].map((pair) => pair.join("=")).join("; ");
    const page = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of page.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    const next = page.headers.get("location");
    if (!next) return (await page.text()).trim();
    url = new URL(next, url).href;
  }
}

const ended = (request) =>
  request.then(
    (result) => ({ result }),
    ({ code, message }) => ({ code, message }),
  );

async function work(agent) {
  const protocolVersion = acp.PROTOCOL_VERSION;
  const greeting = { protocolVersion, clientCapabilities: {} };
  report.methods = (await agent.request(methods.initialize, greeting)).authMethods;
  const make = () => ended(agent.request(methods.session.new, { cwd: workspace, mcpServers: [] }));
  const login = (options) =>
    ended(agent.request(methods.authenticate, { methodId: report.methods[0].id }, options));
  report.before = await make();

  await behave({ deny: true });
  const refused = login();
  report.refusedPage = await browse(await opened());
  report.refused = await refused;
  await behave({});

  const stop = new AbortController();
  const cancelled = login({ cancellationSignal: stop.signal });
  const abandoned = await opened();
  stop.abort();
  report.cancelled = await cancelled;
  report.abandonedPage = await browse(abandoned).catch(() => "nobody listens");

  const first = login();
  await opened();
  const second = login();
  report.first = await first;
  report.page = await browse(await opened());
  report.second = await second;
  report.again = await login();

  report.after = await make();
  const { sessionId } = report.after.result;
  const prompt = { sessionId, prompt: [{ type: "text", text: "hello" }] };
  report.turn = await agent.request(methods.session.prompt, prompt);
}

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const status = new Promise((resolve) => child.on("exit", resolve));
await acp
  .client({ name: "sdk" })
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk") report.said += update.content.text;
  })
  .connectWith(
    acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)),
    work,
  );
child.stdin.end();
report.status = await status;
process.stdout.write(JSON.stringify(report));
