// What the server has said: the history of figures, and how numbers and times are written.

/** How long the past reaches, in seconds. */
export const HOUR = 3600;

/** The figures of an hour, column by column, as `/page/history` gives them. */
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.columns = [];
    this.places = new Map();
    this.times = [];
    this.rows = [];
  }

  /** The time of the last row, in seconds since 1970; 0 if there is none. */
  get last() {
    return this.times.length ? this.times[this.times.length - 1] : 0;
  }

  /** Takes in an answer. Says whether it went on from what is here. */
  take(answer) {
    const goesOn = this.columns.every((known, at) => key(...known) === key(...(answer.columns[at] || [])));
    if (!goesOn) {
      this.clear();
      return false;
    }
    for (let at = this.columns.length; at < answer.columns.length; at++) {
      this.columns.push(answer.columns[at]);
      this.places.set(key(...answer.columns[at]), at);
    }
    for (const row of [...answer.steps, ...answer.seconds]) {
      if (row[0] > this.last) {
        this.times.push(row[0]);
        this.rows.push(row);
      }
    }
    const old = this.times.findIndex((time) => time > this.last - HOUR);
    if (old > 0) {
      this.times.splice(0, old);
      this.rows.splice(0, old);
    }
    return true;
  }

  /** All values of a column, `null` where there was none. */
  values(group, name, figure) {
    const at = this.places.get(key(group, name, figure));
    return this.rows.map((row) => (at === undefined ? null : row[at + 1] ?? null));
  }

  /** The last value of a column; `null` if there is none. */
  now(group, name, figure) {
    const at = this.places.get(key(group, name, figure));
    const row = this.rows[this.rows.length - 1];
    return at === undefined || !row ? null : row[at + 1] ?? null;
  }

  /** The mean of a column over the last seconds, as far as there are values. */
  mean(group, name, figure, seconds) {
    const values = this.values(group, name, figure).slice(-seconds).filter((value) => value !== null);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  }

  /** The names of a group that have a figure. */
  names(group, figure) {
    return this.columns.filter((one) => one[0] === group && one[2] === figure).map((one) => one[1]);
  }
}

function key(group, name, figure) {
  return JSON.stringify([group, name, figure]);
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** A count, in full. */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** A rate or a mean, with three digits. */
export function some(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.abs(value) >= 1000 ? whole.format(value) : short.format(value);
}

/** Bytes, in units of 1024. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let left = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(left) < 1024) return `${short.format(left)} ${unit}`;
    left /= 1024;
  }
  return `${short.format(left)} TiB`;
}

/** A time of day, UTC. */
export function clock(milliseconds) {
  return new Date(milliseconds).toISOString().slice(11, 19);
}

/** A day and time, UTC. */
export function day(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 16).replace("T", " ");
}

/** A duration in words. */
export function lasting(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** The sum of the numbers of an object. */
export function sum(object) {
  return Object.values(object || {}).reduce((all, one) => all + one, 0);
}

/** A word for a shell, quoted if it needs that: between single quotes nothing else means anything. */
export function quoted(text) {
  return /^[\w./:@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The bound below which a share of durations was, in ms, from buckets as `/status` has them. */
export function quantile(durations, share) {
  if (!durations || !durations.count) return null;
  let left = Math.max(1, Math.ceil(durations.count * share));
  let last = 0;
  const bounds = Object.entries(durations.until_us).map(([bound, many]) => [bound === "more" ? Infinity : +bound, many]);
  for (const [bound, many] of bounds.sort((a, b) => a[0] - b[0])) {
    last = bound;
    left -= many;
    if (left <= 0) break;
  }
  return last / 1000;
}
