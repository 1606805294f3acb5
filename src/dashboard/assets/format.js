/** Units and nothing else: figures are shown as the API gave them, in a unit that can be read. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NONE = "–";

const missing = (n) => n === null || n === undefined || Number.isNaN(n);

/** 3246064 → "3,246,064". */
export function integer(n) {
  return missing(n) ? NONE : whole.format(n);
}

/** At most three figures that mean something, without an exponent: 39.11 → "39.1", 1636.4 → "1,636", 0.021 → "0.021". */
export function figure(n) {
  if (missing(n)) return NONE;
  const size = Math.abs(n);
  if (size >= 100 || n === 0) return whole.format(n);
  const digits = size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(n);
}

/** A count with a letter for thousands: 3246064 → "3.25M". */
export function short(n) {
  if (missing(n)) return NONE;
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(n) >= size * 0.9995) return `${figure(n / size)}${letter}`;
  }
  return figure(n);
}

/** Parameters, where a thousand millions are a B: 70553706496 → "70.6B". */
export function count(n) {
  return short(n).replace("G", "B");
}

/** Tokens of a context by powers of two where they are ones: 32768 → "32k", 3246064 → "3.25M". */
export function context(n) {
  if (missing(n)) return NONE;
  return n >= 1024 && n % 1024 === 0 ? (n % 1048576 === 0 ? `${n / 1048576}M` : `${n / 1024}k`) : short(n);
}

/** Bytes by powers of two: 66479502147 → "61.9 GiB". */
export function bytes(n) {
  if (missing(n)) return NONE;
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(n) >= size * 0.9995) return `${figure(n / size)} ${unit}`;
  }
  return `${integer(n)} B`;
}

/** Milliseconds; from a second on, seconds. */
export function ms(n) {
  if (missing(n)) return NONE;
  return n >= 1000 ? `${figure(n / 1000)} s` : `${figure(n)} ms`;
}

/** A share: 0.0841 → "8.4 %". */
export function percent(share) {
  return missing(share) ? NONE : `${figure(share * 100).replace("-", "−")} %`;
}

/** A factor: 2 → "2×". */
export function times(n) {
  return missing(n) ? NONE : `${figure(n)}×`;
}

/** Money: 12.5 → "$12.50". */
export function usd(n) {
  return missing(n) ? NONE : `$${n >= 1000 ? whole.format(n) : n.toFixed(2)}`;
}

/** An estimate with its range, in the unit of `show`: "39.1 ms (32.2–49)". */
export function range(estimate, show = ms) {
  if (missing(estimate?.value)) return NONE;
  const bare = (n) => show(n).replace(/ [^ ]+$/, "");
  const unit = show(estimate.high);
  return `${show(estimate.value)} (${unit.endsWith(show(estimate.low).split(" ").pop()) ? bare(estimate.low) : show(estimate.low)}–${unit})`;
}

/** "TP=8 × PP=2", with what else is not one, in the order of the API's sentences. */
export function layout(sizes) {
  if (!sizes) return NONE;
  const parts = [];
  const name = (key, label) => sizes[key] > 1 && parts.push(`${label}=${sizes[key]}`);
  parts.push(`TP=${sizes.tp ?? 1}`);
  name("pp", "PP");
  name("attention_dp", "attention DP");
  name("ep", "EP");
  name("dcp", "DCP");
  name("dp", "DP");
  return parts.join(" × ");
}

/** "h100-sxm5-80gb" → "H100 SXM5 80GB". */
export function product(key) {
  return key ? key.replaceAll("-", " ").toUpperCase() : NONE;
}

/** "tensorrt-llm" → "TensorRT-LLM". */
const ENGINES = { vllm: "vLLM", sglang: "SGLang", "tensorrt-llm": "TensorRT-LLM" };
export const engine = (name) => ENGINES[name] ?? name;

/** What a step waits for most, in a word: "kv" → "cache". */
const BOUNDS = { weights: "weights", kv: "cache", compute: "arithmetic", communication: "collectives", overhead: "engine" };
export const bound = (word) => BOUNDS[word] ?? words(word);

/** "kv_heads_not_divisible" → "KV heads not divisible". */
export function words(code) {
  const text = String(code ?? "").replaceAll("_", " ").replace(/\b(kv|gpu|tp|pp|dp|ep|slo|cuda)\b/g, (w) => w.toUpperCase());
  return text.charAt(0).toUpperCase() + text.slice(1);
}
