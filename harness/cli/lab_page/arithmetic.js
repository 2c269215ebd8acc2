/* The memory lab's arithmetic: the same numbers, in the same order, as harness/base/random.c, harness/measure/memory_lab.c
 * (draws) and harness/measure/exact_lab.c. `lab.numbers` gives what `frostline lab --exact` writes. */
var lab = (function () {
  "use strict";

  /* xoshiro256** seeded through splitmix64. A 64-bit word is two 32-bit halves, high first. */
  var MASK = (1n << 64n) - 1n;
  function Splitmix(seed) { this.x = seed & MASK; }
  Splitmix.prototype.next = function () {
    this.x = (this.x + 0x9e3779b97f4a7c15n) & MASK;
    var z = this.x;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
    return z ^ (z >> 31n);
  };

  function Random(seed, stream) {
    var mixed = new Splitmix(new Splitmix(BigInt(seed)).next() ^ ((BigInt(stream) * 0xd1342543de82ef95n) & MASK));
    this.high = new Int32Array(4);
    this.low = new Int32Array(4);
    for (var i = 0; i < 4; i++) {
      var word = mixed.next();
      this.high[i] = Number(BigInt.asIntN(32, word >> 32n));
      this.low[i] = Number(BigInt.asIntN(32, word));
    }
  }
  /* Leaves the next word in resultHigh and resultLow. */
  Random.prototype.next = function () {
    var h = this.high, l = this.low, high, low, sumLow, t;
    /* s[1] * 5 = (s[1] << 2) + s[1] */
    low = l[1] << 2;
    high = (h[1] << 2) | (l[1] >>> 30);
    sumLow = (low >>> 0) + (l[1] >>> 0);
    high = (high + h[1] + (sumLow > 4294967295 ? 1 : 0)) | 0;
    low = sumLow | 0;
    /* rotated left by 7, times 9 */
    t = (high << 7) | (low >>> 25);
    low = (low << 7) | (high >>> 25);
    high = t;
    sumLow = ((low << 3) >>> 0) + (low >>> 0);
    this.resultHigh = (((high << 3) | (low >>> 29)) + high + (sumLow > 4294967295 ? 1 : 0)) | 0;
    this.resultLow = sumLow | 0;
    var shiftedHigh = (h[1] << 17) | (l[1] >>> 15), shiftedLow = l[1] << 17;
    h[2] ^= h[0]; l[2] ^= l[0];
    h[3] ^= h[1]; l[3] ^= l[1];
    h[1] ^= h[2]; l[1] ^= l[2];
    h[0] ^= h[3]; l[0] ^= l[3];
    h[2] ^= shiftedHigh; l[2] ^= shiftedLow;
    /* rotated left by 45 = halves exchanged, then by 13 */
    high = l[3]; low = h[3];
    h[3] = (high << 13) | (low >>> 19);
    l[3] = (low << 13) | (high >>> 19);
  };
  /* [0, 1) with 53 bits */
  Random.prototype.uniform = function () {
    this.next();
    return ((this.resultHigh >>> 0) * 2097152 + (this.resultLow >>> 11)) / 9007199254740992;
  };
  Random.prototype.normal = function () {
    var u = 1 - this.uniform(), v = this.uniform();
    return Math.sqrt(-2 * Math.log(u)) * Math.cos(6.283185307179586476925 * v);
  };

  /* Draws are rounded to float32, as the program's are. */
  var round = Math.fround;
  function drawUnit(random, d, shared, concentration, x, at) {
    var norm = 0, i;
    for (i = 0; i < d; i++) {
      x[at + i] = round(random.normal());
      norm += x[at + i] * x[at + i];
    }
    var scale = Math.sqrt(1 - concentration * concentration) / Math.sqrt(norm > 0 ? norm : 1);
    norm = 0;
    for (i = 0; i < d; i++) {
      x[at + i] = round(scale * x[at + i] + (shared ? concentration * shared[i] : 0));
      norm += x[at + i] * x[at + i];
    }
    for (i = 0; i < d; i++) x[at + i] = round(x[at + i] / Math.sqrt(norm > 0 ? norm : 1));
  }
  function draw(options, pairs, trial) {
    var d = options.dimension, random = new Random(options.seed, trial), shared = new Float64Array(d);
    var keys = new Float64Array(pairs * d), replaced = new Float64Array(pairs * d), values = new Float64Array(pairs * d);
    drawUnit(random, d, null, 0, shared, 0);
    for (var at = 0; at < pairs * d; at += d) {
      drawUnit(random, d, shared, options.concentration, keys, at);
      drawUnit(random, d, null, 0, replaced, at);
      drawUnit(random, d, null, 0, values, at);
    }
    return {keys: keys, replaced: replaced, values: values};
  }

  var RULES = ["linear", "delta", "gated_delta", "kda"];

  function dot(n, x, atX, y, atY) {
    var sum = 0;
    for (var i = 0; i < n; i++) sum += x[atX + i] * y[atY + i];
    return sum;
  }
  function readState(d, state, keys, at, y) {
    for (var i = 0; i < d; i++) y[i] = dot(d, state, i * d, keys, at);
  }
  function kept(rule, strength, d, column) {
    if (rule === "gated_delta") return strength.gate;
    if (rule === "kda") return column < (d + 1 >> 1) ? strength.gate : strength.gateRest;
    return 1;
  }
  /* S = S diag(a) (I - b k k^T) + w v k^T */
  function write(rule, strength, d, keys, atKey, values, atValue, state, recalled) {
    var erases = rule !== "linear", beta = erases ? strength.beta : 1, i, j;
    for (j = 0; j < d; j++) {
      var keep = kept(rule, strength, d, j);
      if (keep !== 1) for (i = j; i < d * d; i += d) state[i] *= keep;
    }
    readState(d, state, keys, atKey, recalled);
    for (i = 0; i < d; i++) {
      var change = beta * (values[atValue + i] - (erases ? recalled[i] : 0));
      for (j = 0; j < d; j++) state[i * d + j] += change * keys[atKey + j];
    }
  }

  var FIGURE_VALUES = [1, 0.5, -0.5, 0, 0, -1, 0.5, 1, 0.5, 1, 0, -1, -0.5, 0, 1, 0.5];
  function figureKeys(overlap) {
    return [1, 0, 0, 0, 0, 1, 0, 0, overlap, 0, Math.sqrt(1 - overlap * overlap), 0];
  }
  /* The state, and what it returns for a, b and c, after each of the four writes. */
  function figure(rule, strength, overlap) {
    var keys = figureKeys(overlap), state = new Float64Array(16), y = new Float64Array(4), steps = [];
    for (var step = 0; step < 4; step++) {
      write(rule, strength, 4, keys, step % 3 * 4, FIGURE_VALUES, step * 4, state, y);
      var recall = [];
      for (var k = 0; k < 3; k++) {
        readState(4, state, keys, k * 4, y);
        recall.push.apply(recall, y);
      }
      steps.push({state: Array.from(state), recall: recall});
    }
    return steps;
  }

  function regrouped(options, pairs) {
    var d = options.dimension, data = draw(options, pairs, 0), whole = {gate: 1, gateRest: 1, beta: 1};
    var state = new Float64Array(d * d), y = new Float64Array(d), sum = new Float64Array(d);
    var result = {difference: 0, length: 0};
    for (var t = 0; t < pairs; t++) {
      write("linear", whole, d, data.keys, t * d, data.values, t * d, state, y);
      readState(d, state, data.replaced, t * d, y);
      sum.fill(0);
      for (var j = 0; j <= t; j++) {
        var score = dot(d, data.replaced, t * d, data.keys, j * d);
        for (var i = 0; i < d; i++) sum[i] += score * data.values[j * d + i];
      }
      for (var c = 0; c < d; c++) result.difference = Math.max(result.difference, Math.abs(y[c] - sum[c]));
      result.length += Math.sqrt(dot(d, y, 0, y, 0)) / pairs;
    }
    return result;
  }

  function isNearest(d, pairs, y, values, pair) {
    var best = 0, largest = -Infinity;
    for (var i = 0; i < pairs; i++) {
      var score = dot(d, y, 0, values, i * d);
      if (score > largest) { largest = score; best = i; }
    }
    return best === pair;
  }
  function tally(d, pairs, y, data, pair, sum) {
    var at = pair * d, newest = 0, old = 0, blend = 0, length = Math.sqrt(dot(d, y, 0, y, 0));
    for (var i = 0; i < d; i++) {
      var v = data.values[at + i], w = data.replaced[at + i], both = v + w;
      newest += (y[i] - v) * (y[i] - v);
      old += (y[i] - w) * (y[i] - w);
      blend += (y[i] - both) * (y[i] - both);
    }
    sum.recall_error += newest;
    sum.to_newest += Math.sqrt(newest);
    sum.to_old += Math.sqrt(old);
    sum.to_blend += Math.sqrt(blend);
    sum.cosine += length > 0 ? dot(d, y, 0, data.values, at) / length : 0;
    sum.cosine_old += length > 0 ? dot(d, y, 0, data.replaced, at) / length : 0;
    sum.accuracy += isNearest(d, pairs, y, data.values, pair) ? 1 : 0;
  }
  /* Every rule's means over pairs and trials, each trial drawn once. */
  function recall(strength, options, pairs, overwrite) {
    var d = options.dimension, writes = overwrite ? 2 * pairs : pairs, y = new Float64Array(d), sums = {};
    RULES.forEach(function (rule) {
      sums[rule] = {recall_error: 0, to_newest: 0, to_old: 0, to_blend: 0, cosine: 0, cosine_old: 0, accuracy: 0};
    });
    for (var trial = 0; trial < options.trials; trial++) {
      var data = draw(options, pairs, trial);
      RULES.forEach(function (rule) {
        var state = new Float64Array(d * d);
        for (var step = 0; step < writes; step++) {
          var values = overwrite && step < pairs ? data.replaced : data.values, at = step % pairs * d;
          write(rule, strength, d, data.keys, at, values, at, state, y);
        }
        for (var pair = 0; pair < pairs; pair++) {
          readState(d, state, data.keys, pair * d, y);
          tally(d, pairs, y, data, pair, sums[rule]);
        }
      });
    }
    RULES.forEach(function (rule) {
      Object.keys(sums[rule]).forEach(function (key) { sums[rule][key] /= options.trials * pairs; });
      if (!overwrite) sums[rule].to_old = sums[rule].to_blend = sums[rule].cosine_old = null;
    });
    return sums;
  }

  function numbers(options, strength, overlap, counts) {
    var figures = {};
    RULES.forEach(function (rule) { figures[rule] = figure(rule, strength, overlap); });
    return {
      figure: figures,
      checks: counts.map(function (pairs) {
        return {pairs: pairs, regrouped: regrouped(options, pairs), overwrite: recall(strength, options, pairs, true),
                capacity: recall(strength, options, pairs, false)};
      })
    };
  }

  return {rules: RULES, figureValues: FIGURE_VALUES, figureKeys: figureKeys, figure: figure, regrouped: regrouped, recall: recall,
          numbers: numbers};
})();
