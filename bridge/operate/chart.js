// A chart of lines over time: two axes with units, and the value under the pointer or the arrow keys.
// For a screen reader it is a slider over time, whose text is the moment's values.
const SVG = "http://www.w3.org/2000/svg", HEIGHT = 170, LEFT = 56, RIGHT = 10, TOP = 8, BOTTOM = 24;
const SPAN_S = 300, STEPS_S = [60, 120, 300, 600, 900, 1800], SPIKE = 4;
const clock = s => new Date(s * 1000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const exactly = s => new Date(s * 1000).toLocaleTimeString([], {hourCycle: "h23"});

function shape(name, attributes, content) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (content !== undefined) made.textContent = content;
  return made;
}

// The least round number that is at least x, and whose half is round too. In seconds: a round time.
function round(x, seconds) {
  const times = seconds ? [2, 10, 20, 60, 240, 600, 1200, 3600, 7200, 14400, 43200, 86400, 172800] : [];
  const unit = 10 ** Math.floor(Math.log10(x));
  return times.find(time => time >= x) || Math.max(2, unit * [1, 2, 4, 10].find(n => n * unit >= x));
}

class Chart {
  // lines: [{field, kind, name}]. say: a value in words. seconds: whether values are. clips: whether a
  // short spike may leave the scale, so that the rest can be read; a triangle marks it.
  constructor(host, readout, {lines, say, seconds = false, clips = false}) {
    Object.assign(this, {host, readout, lines, say, seconds, clips, points: [], at: null});
    host.addEventListener("pointermove", event => this.point(event.clientX));
    host.addEventListener("pointerleave", () => this.look(null));
    host.addEventListener("blur", () => this.look(null));
    host.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  show(points) {
    const time = this.at === null ? null : this.points[this.at]?.time_s;
    this.points = points;
    const at = points.findIndex(point => point.time_s === time);
    this.at = at < 0 ? null : at;
    this.draw();
  }

  values(point) { return this.lines.map(line => point[line.field]); }

  top() {
    const all = this.points.flatMap(point => this.values(point)).filter(y => y !== null).sort((a, b) => a - b);
    const most = Math.max(1, all.at(-1) || 0), usual = Math.max(1, all[Math.floor(all.length * 0.9)] || 0);
    return round(this.clips && most > SPIKE * usual ? 2 * usual : most, this.seconds);
  }

  draw() {
    const width = this.host.clientWidth;
    if (!width) return;
    const last = this.points.at(-1)?.time_s ?? Date.now() / 1000;
    this.from = Math.min(this.points[0]?.time_s ?? last, last - SPAN_S);
    this.x = s => LEFT + (s - this.from) / (last - this.from) * (width - LEFT - RIGHT);
    this.most = this.top();
    this.y = value => TOP + (1 - Math.min(value, this.most) / this.most) * (HEIGHT - TOP - BOTTOM);
    const svg = shape("svg", {width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true"});
    for (const part of [0, 0.5, 1]) {
      const value = this.most * part, y = this.y(value);
      svg.append(shape("line", {class: "grid-line", x1: LEFT, x2: width - RIGHT, y1: y, y2: y}));
      svg.append(shape("text", {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, part ? this.say(value) : "0"));
    }
    const span = last - this.from;
    const step = STEPS_S.find(s => span / s <= (width - LEFT) / 70) || 3600;
    for (let s = Math.ceil(this.from / step) * step; s <= last; s += step) {
      const x = this.x(s), anchor = x > width - 30 ? "end" : "middle";
      svg.append(shape("line", {class: "grid-line", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM}));
      svg.append(shape("text", {x: anchor === "end" ? width - 2 : x, y: HEIGHT - 6, "text-anchor": anchor}, clock(s)));
    }
    for (const line of this.lines) svg.append(...this.line(line));
    this.cursor = shape("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
    svg.append(this.cursor);
    this.host.replaceChildren(svg);
    this.look(this.at);
  }

  // A value that is not known leaves a gap.
  line({field, kind: style}) {
    let path = "", open = false;
    const marks = [];
    for (const point of this.points) {
      const value = point[field];
      if (value === null) { open = false; continue; }
      const x = this.x(point.time_s).toFixed(1), y = this.y(value).toFixed(1);
      path += `${open ? "L" : "M"}${x} ${y}`;
      open = true;
      if (value > this.most) marks.push(shape("path", {class: `spike ${style}`, d: `M${x - 4} ${TOP + 6}h8l-4 -7z`}));
    }
    return [shape("path", {class: `line ${style}`, d: path}), ...marks];
  }

  point(clientX) {
    const x = clientX - this.host.getBoundingClientRect().left;
    const far = this.points.map(point => Math.abs(this.x(point.time_s) - x));
    this.look(far.length ? far.indexOf(Math.min(...far)) : null);
  }

  key(event) {
    const last = this.points.length - 1, at = this.at ?? last + 1;
    const to = {ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageUp: at - 12, PageDown: at + 12,
      Home: 0, End: last}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.look(Math.max(0, Math.min(last, to)));
  }

  // Shows the values of a point; of none, the last ones and the greatest.
  look(at) {
    this.at = at;
    const point = this.points[at ?? this.points.length - 1];
    const known = point ? this.values(point).map((value, i) => `${this.lines[i].name} ${value === null ? "not known" : this.say(value)}`) : [];
    let said = known.length ? `${at === null ? "Now" : exactly(point.time_s)}: ${known.join(", ")}.` : "Nothing was measured yet.";
    if (at === null && known.length) said += ` ${this.greatest()}`;
    put(this.readout, said);
    this.host.setAttribute("aria-valuetext", said);
    this.host.setAttribute("aria-valuemax", Math.max(0, this.points.length - 1));
    this.host.setAttribute("aria-valuenow", at ?? Math.max(0, this.points.length - 1));
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(point.time_s));
  }

  greatest() {
    let most = null, when = 0, name = "";
    for (const point of this.points) this.values(point).forEach((value, i) => {
      if (value !== null && (most === null || value > most)) [most, when, name] = [value, point.time_s, this.lines[i].name];
    });
    return most ? `Most: ${name} ${this.say(most)} at ${clock(when)}.` : "";
  }
}
