const POINTS_MAX = 720;
const NEEDS = {
  nothing: "waits by itself", cause: "needs somebody; then goes on by itself", retry: "needs somebody, and a retry",
};
const HEALTH = {answers: "live", stalled: "blocked", "no answer": "blocked", refuses: "blocked", "not asked": "stopped"};
const SAID = {
  answers: "answers", stalled: "is connected, and acknowledges nothing of any log", "no answer": "does not answer", refuses: "does not accept the bridge",
  "not asked": "is not asked: no log has anything to send",
};
let token = "", points = [], last = null, shown = null, failures = 0, wake = () => {};
const charts = [
  new Chart($("rates"), $("rates-text"), {
    lines: [{field: "records_in", kind: "in", name: "in"}, {field: "records_out", kind: "out", name: "out"}], say: number, clips: true,
  }),
  new Chart($("lags"), $("lags-text"), {lines: [{field: "lag_seconds", kind: "lag", name: "oldest"}], say: duration, seconds: true}),
];

const several = () => last.clusters.length > 1;  // otherwise the cluster's name says nothing
const nameOf = log => several() ? `${log.log} → ${log.cluster}` : log.log;
const keyOf = log => JSON.stringify([log.log, log.cluster]);
const headers = () => token ? {Authorization: "Bearer " + token} : {};
const ask = (path, body) => fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body)}).catch(() => null);
const since = s => `since ${clock(s)} (${duration(Math.max(0, last.summary.time_s - s))})`;

function showState(state) {
  const e = $("state");
  if (e.textContent !== state) { e.textContent = state; e.className = "state " + state; document.title = state + " - aolog bridge"; }
}
function showMessage(value) { text("message", value); $("message").hidden = !value; }

function show(status) {
  last = status;
  const whole = status.overview, sum = status.summary;
  showState(whole.state);
  text("about", `version ${status.version}, up ${duration(sum.uptime_s)}, ${plural(whole.logs, "log")}, ${plural(sum.restarts, "abnormal restart")}`);
  showMessage("");
  showClusters(status.clusters);
  showTroubles(status.troubles);
  text("oldest", sum.pending === 0 ? "none" : duration(sum.oldest_unsent_s));
  text("rate-in", number(sum.records_in_per_s));
  text("rate-out", number(sum.records_out_per_s));
  showRoom(sum);
  text("n-seen", number(sum.seen));
  text("n-acknowledged", number(whole.acknowledged));
  text("n-skipped", number(whole.skipped));
  text("n-pending", number(sum.pending));
  text("n-dead", number(whole.dead_lettered));
  text("n-dropped", number(whole.dropped));
  text("n-filtered", number(whole.filtered));
  text("n-lost", number(whole.lost_records));
  kind($("n-lost"), whole.lost_records ? "error" : "");
  showLogs(status);
  showProblems(status);
  if (shown !== null) refreshDetail();
  $("token-form").hidden = Boolean(token) || !(status.can_act || $("token-form").dataset.needed);
}

// A time far away is not exact, and nobody acts on it; one that is near changes only when it really does.
function showRoom(sum) {
  const bound = sum.bound_in_s !== null && (sum.disk_full_in_s === null || sum.bound_in_s < sum.disk_full_in_s);
  const left = bound ? sum.bound_in_s : sum.disk_full_in_s, before = Number($("full").dataset.left || 0);
  text("full-of", bound ? "A log reaches its bound in" : "Disk full in");
  if (left === null || Math.abs(left - before) > 0.15 * before) $("full").dataset.left = left || 0;
  const steady = Number($("full").dataset.left);
  text("full", left === null ? "not filling" : left > 172800 ? "over 2 days" : duration(steady));
  kind($("full"), left !== null && left < 14400 ? "error" : "");
}

// Nothing is green under a cluster that does not answer.
const isDead = name => last.clusters.some(c => c.cluster === name && HEALTH[c.state] === "blocked");

function showClusters(clusters) {
  const items = children($("clusters"), clusters.length, "li");
  clusters.forEach((cluster, i) => {
    const spans = children(items[i], 2, "span");
    kind(spans[0], "state " + HEALTH[cluster.state]);
    put(spans[0], cluster.state);
    put(spans[1], `Cluster ${cluster.cluster} ${SAID[cluster.state]}, ${since(cluster.since_s)}; ${plural(cluster.logs, "log")}`);
  });
  document.body.classList.toggle("dead", clusters.length > 0 && clusters.every(c => HEALTH[c.state] === "blocked"));
}

function showTroubles(troubles) {
  const acts = troubles.filter(t => t.needs !== "nothing").length;
  text("troubles-text", troubles.length ? `${plural(troubles.length, "problem")}; ${acts ? number(acts) : "none"} ${acts > 1 ? "need" : "needs"} somebody.` : "Nothing stops a log.");
  kind($("troubles-text"), troubles.length ? "" : "soft");
  const items = children($("troubles"), troubles.length, "li");
  troubles.forEach((trouble, i) => {
    const item = items[i];
    item.id = `problem-${i + 1}`;
    item.tabIndex = -1;
    kind(item, `card trouble ${trouble.needs}`);
    const parts = children(item, 4, "p");
    put(parts[0], `${i + 1}. ${trouble.cause}`);
    put(parts[1], trouble.advice ? `What to do: ${trouble.advice}.` : "");
    put(parts[2], [since(trouble.since_s), trouble.cluster && several() ? `cluster ${trouble.cluster}` : "", named(trouble)].filter(Boolean).join("; "));
    kind(parts[2], "soft");
    put(parts[3], NEEDS[trouble.needs]);
    kind(parts[3], "needs");
  });
}
function named(trouble) {
  const some = trouble.logs.slice(0, 3).join(", ");
  return trouble.log_count > 3 ? `${plural(trouble.log_count, "log")}: ${some}, …` : some;
}
// The numbers of the problems of a log.
const problemsOf = log => last.troubles.flatMap((t, i) => t.cluster === log.cluster && t.logs.includes(log.log) ? [i + 1] : []);

function showLogs(status) {
  const wanted = $("filter").value.toLowerCase();
  const logs = status.logs.filter(log => log.log.toLowerCase().includes(wanted));
  text("left-out", status.logs_left_out ? `The ${status.logs.length} most urgent are listed; ${number(status.logs_left_out)} more are in /status.` : "");
  const all = rows($("log-table"), logs.length);
  logs.forEach((log, i) => {
    const row = all[i], state = log.phase === "paused" ? "paused" : isDead(log.cluster) && log.state === "live" ? "connecting" : log.state;
    cells(row, [[null, "name"], [state, state], [number(log.lag_records), "number"],
      [log.lag_records === 0 ? "none" : duration(log.lag_seconds), "number"],
      [number(log.rate || 0), "number"], [number(log.lost_records), log.lost_records ? "number error" : "number"], [null, ""]]);
    const [button] = children(row.cells[0], 1, "button");
    kind(button, "link");
    button.type = "button";
    put(button, nameOf(log));
    const numbers = problemsOf(log), links = children(row.cells[6], numbers.length, "a");
    numbers.forEach((n, j) => { put(links[j], `problem ${n}`); links[j].setAttribute("href", `#problem-${n}`); });
    kind(row.cells[6], numbers.length ? "text" : "empty");
    row.dataset.key = keyOf(log);
  });
}

// Log lines about a problem of now are left out: it is shown above.
function showProblems({problems, troubles}) {
  const earlier = problems.filter(p => !troubles.some(t => p.last_s >= t.since_s - 60 && p.message.includes(t.cause)));
  $("no-problems").hidden = earlier.length > 0;
  $("problems").hidden = earlier.length === 0;
  const all = rows($("problems"), earlier.length);
  earlier.forEach((p, i) => cells(all[i], [
    exactly(p.last_s), [number(p.count), "number"], [p.logs.join(", "), "text"], [p.message, "text"]]));
}

function archiveText(archive) {
  if (!archive) return "";
  const upTo = archive.end === null ? "nothing yet" : `up to address ${number(archive.end)}, ${(archive.behind_bytes / 1e6).toFixed(1)} MB to come`;
  return ` Archived: ${upTo}; ${plural(archive.requests, "request")}, ${(archive.sent_bytes / 1e6).toFixed(1)} MB sent.` + (archive.error ? ` ${archive.error}` : "");
}

async function refreshDetail() {
  const [log, cluster] = JSON.parse(shown);
  const answer = await fetch("/log?" + new URLSearchParams({log, cluster}), {headers: headers()}).catch(() => null);
  if (!answer || !answer.ok || shown !== JSON.stringify([log, cluster])) return;
  const found = await answer.json();
  $("detail").hidden = false;
  text("detail-name", found.log);
  const bytes = found.slabs.reduce((n, s) => n + s.bytes, 0);
  text("detail-text", `${plural(found.slabs.length, "slab")}, ${(bytes / 1e6).toFixed(1)} MB on disk; ${number(found.acknowledged)} acknowledged, ${number(found.lag_records)} pending, ` +
    `${number(found.lost_records)} lost, ${number(found.dead_lettered)} in dead letters, ${plural(found.restarts, "restart")}.` + archiveText(found.archive));
  showSlabs(found);
  showLanes(found);
  const mayAct = Boolean(last && last.can_act && token), ended = found.phase === "done" || found.phase === "removed";
  const paused = found.phase === "paused", stopped = found.state === "blocked" || found.phase === "waiting" || found.phase === "standing";
  const means = {pause: !paused && !ended, resume: paused, retry: stopped && !paused};
  for (const button of $("detail").querySelectorAll("[data-action]")) button.hidden = !mayAct || !means[button.dataset.action];
  $("seek-form").hidden = !mayAct || !paused;
}

function showSlabs(found) {
  const strip = $("strip");
  const slabs = [...found.pruned_slabs.map(base => ({base, pruned: true})), ...found.slabs].slice(-roomIn(strip));
  const spans = children(strip, slabs.length, "span");
  let sent = 0, damaged = 0;
  slabs.forEach((slab, i) => {
    const next = slabs[i + 1], over = next && found.committed !== undefined && next.base <= found.committed;
    const hit = ([begin, end]) => end > slab.base && (!next || begin < next.base);
    const how = slab.pruned ? "pruned" : found.damaged.some(hit) ? "damaged" : over ? "sent" : found.lag_records === 0 ? "sent" : "pending";
    if (how === "sent") sent += 1;
    if (how === "damaged") damaged += 1;
    kind(spans[i], how);
    spans[i].title = `slab at ${slab.base}: ${how}`;
  });
  strip.setAttribute("aria-label", `${found.slabs.length} slabs, ${sent} sent` + (damaged ? `, ${damaged} damaged` : ""));
}

// A reason that a problem above has is named by its number.
function showLanes(found) {
  const lanes = [...(found.waiting_lanes || []),
    ...(found.stalled || []).map(lane => ({...lane, state: "stalled", reason: `its leader, ${lane.leader}, acknowledges nothing`}))];
  $("lanes").hidden = lanes.length === 0;
  const all = rows($("lanes"), lanes.length);
  lanes.forEach((lane, i) => {
    const known = last ? last.troubles.findIndex(t => t.cause === lane.cause && t.cluster === found.cluster) : -1;
    cells(all[i], [[lane.topic || "all", "text"], [lane.partition < 0 ? "all" : String(lane.partition), "number"], [lane.state, ""],
      [known < 0 ? lane.reason : [`problem ${known + 1}`, ...(lane.reason.match(/address \d+/) || [])].join(", from "), "text"], [duration(lane.seconds), "number"]]);
  });
}

// The form for the token is shown again where it was refused.
function refused(answer) { if (answer && answer.status === 401) { token = ""; sayToken("the bridge has another token now"); } }
function sayToken(said) {
  text("token-text", said);
  $("token").toggleAttribute("aria-invalid", Boolean(said));
}
async function useToken() {
  const given = $("token").value.trim();
  const answer = await fetch("/token", {method: "POST", headers: {Authorization: "Bearer " + given}}).catch(() => null);
  if (!answer || !answer.ok) {
    const why = answer ? (await answer.json().catch(() => ({}))).error : "the bridge does not answer";
    sayToken(`${why}; nothing was changed`);
    $("token").select();
    return;
  }
  token = given;
  $("token").value = "";
  sayToken("");
  text("action-text", "");
  $("token-form").hidden = true;
  wake();
  if (shown !== null) refreshDetail();
}

async function act(action) {
  const [log, cluster] = JSON.parse(shown);
  const answer = await ask("/action", {action, log, cluster});
  refused(answer);
  const said = answer ? await answer.json().catch(() => ({})) : {error: "the bridge does not answer"};
  text("action-text", answer && answer.ok ? `${action}: done` : `${action}: ${said.error || "refused"}. ${said.hint || ""}`);
  refreshDetail();
}

async function seek(dryRun) {
  const [log, cluster] = JSON.parse(shown), to = $("seek-to").value;
  const answer = await ask("/seek", {log, cluster, to, dry_run: dryRun});
  refused(answer);
  const said = answer ? await answer.json().catch(() => ({})) : {error: "the bridge does not answer"};
  const good = Boolean(answer && answer.ok), back = good && said.before !== null && said.address < said.before;
  const would = dryRun ? "would be " : "are ";
  text("action-text", !good ? `seek: ${said.error || "refused"}. ${said.hint || ""}` :
    said.address === said.before ? "the cursor is there already" :
    `cursor ${dryRun ? "would move" : "moved"} from address ${said.before} to ${said.address}; ${number(said.records)} records ${would}${back ? "sent again" : "never sent"}`);
  $("seek-do").hidden = !good || !dryRun;
  refreshDetail();
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/events", {headers: headers()});
      if (answer.status === 401) { $("token-form").dataset.needed = "1"; $("token-form").hidden = false; throw new Error("this bridge shows its status only with its token"); }
      if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || `status ${answer.status}`);
      failures = 0; points = [];
      await take(answer, (name, value) => {
        if (name === "status") { show(value); return; }
        points = points.concat(value).slice(-POINTS_MAX);
        for (const chart of charts) chart.show(points);
      });
      throw new Error("the bridge has ended, or cannot be reached");
    } catch (error) {
      failures += 1;
      showState("offline");
      document.body.classList.add("dead");
      showMessage(`${error.message}; trying again`);
      await new Promise(done => { wake = done; setTimeout(done, Math.min(10000, 500 * failures)); });
    }
  }
}

$("log-table").addEventListener("click", event => {
  const row = event.target.closest("tr");
  if (!row || !event.target.closest("button")) return;
  shown = row.dataset.key; text("action-text", "");
  refreshDetail().then(() => $("detail-name").focus());
});
$("close").addEventListener("click", () => { shown = null; $("detail").hidden = true; });
$("detail").addEventListener("click", event => { if (event.target.dataset.action) act(event.target.dataset.action); });
$("seek-form").addEventListener("submit", event => { event.preventDefault(); seek(true); });
$("seek-do").addEventListener("click", () => seek(false));
$("seek-to").addEventListener("input", () => { $("seek-do").hidden = true; });
$("filter").addEventListener("input", () => last && showLogs(last));
$("filter-form").addEventListener("submit", event => event.preventDefault());
$("token-form").addEventListener("submit", event => { event.preventDefault(); useToken(); });
follow();
