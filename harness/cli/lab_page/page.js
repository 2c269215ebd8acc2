/* What a reader sees and touches. Every number comes from `lab` (arithmetic.js). */
(function () {
  "use strict";
  var NAMES = {linear: "plain accumulation", delta: "delta rule", gated_delta: "gated delta rule", kda: "kda"};
  var EQUATIONS = {linear: "S + v k\u1d40", delta: "S (I \u2212 \u03b2 k k\u1d40) + \u03b2 v k\u1d40",
                   gated_delta: "g S (I \u2212 \u03b2 k k\u1d40) + \u03b2 v k\u1d40", kda: "S diag(a) (I \u2212 \u03b2 k k\u1d40) + \u03b2 v k\u1d40"};
  var DASHES = {linear: "", delta: "7 3", gated_delta: "2 3", kda: "9 3 2 3"};
  var KEYS = ["a", "b", "c"];
  var SVG = "http://www.w3.org/2000/svg";

  function byId(id) { return document.getElementById(id); }
  /* An element with attributes and children (text or elements). */
  function make(name, attributes, children, space) {
    var element = space ? document.createElementNS(space, name) : document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    (children || []).forEach(function (child) { element.append(child); });
    return element;
  }
  function drawn(name, attributes, children) { return make(name, attributes, children, SVG); }
  function fixed(value, digits) {
    var text = Math.abs(value).toFixed(digits);
    return (value < 0 && Number(text) !== 0 ? "\u2212" : "") + text;
  }
  var RAISED = {"-": "\u207b", "0": "\u2070", "1": "\u00b9", "2": "\u00b2", "3": "\u00b3", "4": "\u2074", "5": "\u2075", "6": "\u2076", "7": "\u2077",
                "8": "\u2078", "9": "\u2079"};
  function power(exponent) {
    return "10" + String(exponent).split("").map(function (c) { return RAISED[c]; }).join("");
  }
  /* Three significant digits. */
  function short(value) {
    if (value === null) return "\u2013";
    var size = Math.abs(value);
    if (!isFinite(value)) return value < 0 ? "\u2212\u221e" : "\u221e";
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
      var parts = value.toExponential(1).split("e");
      return parts[0].replace("-", "\u2212") + " \u00d7 " + power(Number(parts[1]));
    }
    if (size >= 1000) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
    return String(Number(value.toPrecision(3))).replace("-", "\u2212");
  }
  function withUnit(value, units, step) {
    var place = 0;
    while (value >= step && place < units.length - 1) { value /= step; place++; }
    return short(value) + " " + units[place];
  }
  function bytes(value) { return withUnit(value, ["B", "kB", "MB", "GB", "TB"], 1000); }
  function flops(value) { return withUnit(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000); }
  function distance(x, y) {
    return Math.sqrt(x.reduce(function (sum, value, i) { return sum + (value - y[i]) * (value - y[i]); }, 0));
  }
  function listed(words) { return words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words[words.length - 1]; }

  /* Tables of numbers: a heading row, then rows whose first cell is their name. */
  function table(caption, headings, rows) {
    var head = make("tr", {}, headings.map(function (text) { return make("th", {scope: "col"}, [text]); }));
    var body = rows.map(function (row) {
      return make("tr", {}, row.map(function (text, i) { return i === 0 ? make("th", {scope: "row"}, [text]) : make("td", {}, [text]); }));
    });
    return make("table", {}, [make("caption", {}, [caption]), make("thead", {}, [head]), make("tbody", {}, body)]);
  }

  /* The stripes of negative bars; one definition for every picture. */
  document.querySelector(".lab").append(drawn("svg", {width: 0, height: 0, style: "position:absolute;width:0;height:0", "aria-hidden": "true"}, [
    drawn("defs", {}, [drawn("pattern", {id: "stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"}, [
      drawn("rect", {width: 6, height: 6, style: "fill:rgba(var(--minus),.2)"}), drawn("rect", {width: 2, height: 6, style: "fill:rgb(var(--minus))"})])])]));
  byId("key-plus").className = "hatched plus";
  byId("key-minus").className = "hatched minus";
  byId("key-plus").style.setProperty("--a", "1");
  byId("key-minus").style.setProperty("--a", "1");

  /* Figure 18.2 ---------------------------------------------------------------------------------------------------- */
  var state = {step: 0, guessed: false, guess: null, timer: null};
  var WRITES = ["Nothing is written yet. The state is zero.", "Write 1: a value under key a.", "Write 2: a value under key b, perpendicular to a.",
                "Write 3: a value under key c, which overlaps a.", "Write 4: a new value under key a."];

  function slider(id) { return Number(byId(id).value); }
  function chosen() {
    return lab.rules.filter(function (rule) { return document.querySelector('#rules input[value="' + rule + '"]').checked; });
  }
  function strength() { return {gate: slider("gate"), gateRest: slider("gate-rest"), beta: slider("beta")}; }
  /* The value last stored under a key after `step` writes, or null. */
  function stored(key, step) {
    var write = key === 0 && step >= 4 ? 3 : key < step ? key : -1;
    return write < 0 ? null : lab.figureValues.slice(write * 4, write * 4 + 4);
  }

  function stateTable(rule, values, before) {
    var head = make("tr", {}, [make("td", {"aria-hidden": "true", style: "border-color:transparent"})].concat([1, 2, 3, 4].map(function (j) {
      return make("th", {scope: "col"}, ["k" + "\u2081\u2082\u2083\u2084"[j - 1]]);
    })));
    var rows = [0, 1, 2, 3].map(function (i) {
      return make("tr", {}, [make("th", {scope: "row"}, ["v" + "\u2081\u2082\u2083\u2084"[i]])].concat([0, 1, 2, 3].map(function (j) {
        var value = values[i * 4 + j], shown = fixed(value, 2), sign = Number(value.toFixed(2));
        var changed = Math.abs(value - before[i * 4 + j]) > 1e-9;
        var cell = make("td", {"class": (sign < 0 ? "minus" : "plus") + (changed ? " changed" : "")}, [shown]);
        cell.style.setProperty("--a", String(Math.min(1, Math.abs(value) / 1.5)));
        return cell;
      })));
    });
    return make("table", {"class": "state"}, [make("caption", {}, ["State S, " + NAMES[rule]]), make("thead", {}, [head]), make("tbody", {}, rows)]);
  }

  /* Four bars: what is recalled; dashed, what was stored last. */
  function bars(rule, key, recalled, wanted) {
    var width = 84, height = 92, middle = 46, scale = 24, parts = [];
    var limit = function (value) { return Math.max(-1.8, Math.min(1.8, value)); };
    for (var i = 0; i < 4; i++) {
      var x = 4 + i * 20, size = Math.abs(limit(recalled[i])) * scale;
      parts.push(drawn("rect", {x: x, y: recalled[i] >= 0 ? middle - size : middle, width: 16, height: Math.max(size, .5),
                                style: recalled[i] >= 0 ? "fill:rgb(var(--plus))" : "fill:url(#stripes);stroke:rgb(var(--minus))"}));
      if (wanted) {
        var goal = Math.abs(wanted[i]) * scale;
        parts.push(drawn("rect", {x: x - 1.5, y: wanted[i] >= 0 ? middle - goal : middle, width: 19, height: Math.max(goal, .5),
                                  style: "fill:none;stroke:var(--ink);stroke-width:1.3;stroke-dasharray:3 2"}));
      }
    }
    parts.push(drawn("line", {x1: 0, x2: width, y1: middle, y2: middle, style: "stroke:var(--edge)"}));
    var label = NAMES[rule] + ", recall of " + key + ": " + recalled.map(function (v) { return fixed(v, 2); }).join(", ") +
        (wanted ? "; stored: " + wanted.map(function (v) { return fixed(v, 2); }).join(", ") : "; nothing stored yet");
    var distanceText = wanted ? "off by " + fixed(distance(recalled, wanted), 2) : "nothing stored";
    return make("div", {}, [drawn("svg", {viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": label}, parts),
                            make("p", {}, [make("b", {}, [key]), make("br"), distanceText])]);
  }

  function isHidden(rule) { return rule === "linear" && state.step === 4 && !state.guessed; }

  function panel(rule) {
    var steps = lab.figure(rule, strength(), slider("overlap")), zero = new Array(16).fill(0);
    var at = state.step > 0 ? steps[state.step - 1] : {state: zero, recall: new Array(12).fill(0)};
    var before = state.step > 1 ? steps[state.step - 2].state : zero;
    var parts = [make("h3", {}, [NAMES[rule]]), make("p", {"class": "equation"}, ["S \u2190 " + EQUATIONS[rule]]), stateTable(rule, at.state, before)];
    if (isHidden(rule)) {
      parts.push(make("p", {"class": "hidden-recall"}, ["Recall is covered until you have predicted it (above)."]));
    } else {
      parts.push(make("div", {"class": "bars"}, KEYS.map(function (key, k) {
        return bars(rule, key, at.recall.slice(k * 4, k * 4 + 4), stored(k, state.step));
      })));
    }
    return make("section", {"class": "panel", "aria-label": NAMES[rule]}, parts);
  }

  /* One sentence a rule: what a returns, how far that is from the newest value, and how b and c fare. */
  function sentence(rule) {
    if (isHidden(rule)) return "Plain accumulation: predict first.";
    var name = NAMES[rule].charAt(0).toUpperCase() + NAMES[rule].slice(1);
    if (state.step === 0) return name + ": nothing to recall.";
    var at = lab.figure(rule, strength(), slider("overlap"))[state.step - 1];
    var recallOfA = at.recall.slice(0, 4), text = name + " returns (" + recallOfA.map(function (v) { return fixed(v, 2); }).join(", ") + ") for a";
    var old = lab.figureValues.slice(0, 4), off = distance(recallOfA, stored(0, state.step));
    if (off < 1e-9) text += ", exactly the value last stored";
    else text += ", " + fixed(off, 2) + " from the value last stored";
    if (state.step === 4) text += " and " + fixed(distance(recallOfA, old), 2) + " from the old one";
    var rest = [1, 2].filter(function (k) { return stored(k, state.step); }).map(function (k) {
      return KEYS[k] + " is off by " + fixed(distance(at.recall.slice(k * 4, k * 4 + 4), stored(k, state.step)), 2);
    });
    return text + (rest.length ? "; " + listed(rest) : "") + ".";
  }

  function showFigure() {
    ["overlap", "beta", "gate", "gate-rest"].forEach(function (id) { byId(id + "-value").textContent = slider(id).toFixed(2); });
    var write = state.step > 0 ? lab.figureValues.slice((state.step - 1) * 4, state.step * 4) : null;
    byId("now").textContent = WRITES[state.step] + (write ? " v = (" + write.map(function (v) { return fixed(v, 1); }).join(", ") + ")." : "");
    byId("panels").replaceChildren.apply(byId("panels"), chosen().map(panel));
    byId("words").replaceChildren.apply(byId("words"), chosen().map(function (rule) { return make("p", {}, [sentence(rule)]); }));
    byId("predict").hidden = !(state.step === 4 && !state.guessed && chosen().indexOf("linear") >= 0);
    /* Not `disabled`, which would take the focus from who steps by keyboard. */
    byId("back").setAttribute("aria-disabled", String(state.step === 0));
    byId("step").setAttribute("aria-disabled", String(state.step === 4));
    byId("summary").hidden = !state.guessed;
    byId("verdict").textContent = state.step === 4 && state.guessed ? verdict() : "";
  }
  function goTo(step) {
    state.step = Math.max(0, Math.min(4, step));
    showFigure();
  }
  function stop() {
    clearInterval(state.timer);
    state.timer = null;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-pressed", "false");
  }
  function play() {
    if (state.timer !== null) return stop();
    goTo(state.step === 4 ? 0 : state.step + 1);
    byId("play").textContent = "Pause";
    byId("play").setAttribute("aria-pressed", "true");
    state.timer = setInterval(function () {
      if (state.step < 4) goTo(state.step + 1);
      if (state.step === 4) stop();
    }, 1400);
  }
  function verdict() {
    var at = lab.figure("linear", strength(), slider("overlap"))[3].recall.slice(0, 4);
    return (state.guess === null ? "" : state.guess === "blend" ? "Right. " : "Not this. ") + "Plain accumulation returns (" +
        at.map(function (v) { return fixed(v, 2); }).join(", ") + ") for a: the old value plus the new one" +
        (slider("overlap") > 0 ? ", plus " + slider("overlap").toFixed(2) + " times the value under c." : ".");
  }
  function reveal(guess) {
    state.guess = guess;
    state.guessed = true;
    showFigure();
    byId("verdict").focus();
  }
  function restart() {
    stop();
    state.guessed = false;
    document.getElementsByName("guess").forEach(function (choice) { choice.checked = false; });
    byId("try").disabled = true;
    goTo(0);
  }

  ["overlap", "beta", "gate", "gate-rest"].forEach(function (id) { byId(id).addEventListener("input", showFigure); });
  byId("rules").addEventListener("change", showFigure);
  byId("step").addEventListener("click", function () { stop(); goTo(state.step + 1); });
  byId("back").addEventListener("click", function () { stop(); goTo(state.step - 1); });
  byId("restart").addEventListener("click", restart);
  byId("play").addEventListener("click", play);
  document.getElementsByName("guess").forEach(function (choice) {
    choice.addEventListener("change", function () { byId("try").disabled = false; });
  });
  byId("try").addEventListener("click", function () { reveal(document.querySelector('input[name="guess"]:checked').value); });
  byId("show").addEventListener("click", function () { reveal(null); });

  /* Charts ----------------------------------------------------------------------------------------------------------- */
  function ticksOf(low, high, log, most) {
    var ticks = [], step, value;
    if (log) {
      step = Math.max(1, Math.ceil((Math.log10(high) - Math.log10(low)) / most));
      for (value = Math.ceil(Math.log10(low) - 1e-9); value <= Math.log10(high) + 1e-9; value += step) ticks.push(Math.pow(10, value));
    } else {
      for (value = 0; value <= 4; value++) ticks.push(low + (high - low) * value / 4);
    }
    return ticks;
  }
  function pathOf(points, x, y) {
    return points.map(function (p, i) { return (i ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1); }).join("");
  }
  /* chart: title, x {label, low, high, ticks: [[value, text]]} (by powers), y {label, low, high, log, text}, series, mark. */
  function showChart(box, chart) {
    var width = Math.max(280, Math.min(640, box.clientWidth || 560)), height = 270, left = 66, right = width - 12, top = 22, bottom = height - 44;
    var logX = function (v) { return left + (right - left) * Math.log(v / chart.x.low) / Math.log(chart.x.high / chart.x.low || 2); };
    var y = function (v) {
      var share = chart.y.log ? Math.log(Math.max(v, chart.y.low) / chart.y.low) / Math.log(chart.y.high / chart.y.low)
                              : (v - chart.y.low) / (chart.y.high - chart.y.low);
      return bottom - (bottom - top) * Math.max(0, Math.min(1, share));
    };
    var parts = [], lastX = -100;
    ticksOf(chart.y.low, chart.y.high, chart.y.log, 6).forEach(function (v) {
      parts.push(drawn("line", {x1: left, x2: right, y1: y(v), y2: y(v), style: "stroke:var(--line)"}));
      parts.push(drawn("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, [chart.y.text(v)]));
    });
    chart.x.ticks.forEach(function (tick) {
      if (logX(tick[0]) - lastX < 30) return;
      lastX = logX(tick[0]);
      parts.push(drawn("line", {x1: lastX, x2: lastX, y1: bottom, y2: bottom + 4, style: "stroke:var(--edge)"}));
      parts.push(drawn("text", {x: lastX, y: bottom + 17, "text-anchor": "middle"}, [tick[1]]));
    });
    parts.push(drawn("text", {x: (left + right) / 2, y: height - 6, "text-anchor": "middle"}, [chart.x.label]));
    if (chart.mark && chart.mark.at >= chart.x.low && chart.mark.at <= chart.x.high) {
      var at = Math.round(logX(chart.mark.at));
      parts.push(drawn("line", {x1: at, x2: at, y1: top, y2: bottom, style: "stroke:var(--ink);stroke-dasharray:1 3"}));
      parts.push(drawn("text", {x: Math.min(at, right - 24), y: top - 7, "text-anchor": "middle"}, [chart.mark.text]));
    }
    chart.series.forEach(function (series) {
      parts.push(drawn("path", {d: pathOf(series.points, logX, y), style: "fill:none;stroke-width:2;stroke:" + series.colour +
                                ";stroke-dasharray:" + (series.dash || "none")}));
      if (series.dots) series.points.forEach(function (p) {
        parts.push(drawn("circle", {cx: logX(p[0]), cy: y(p[1]), r: 2.5, style: "fill:" + series.colour}));
      });
    });
    var names = chart.series.map(function (series) {
      return make("li", {}, [drawn("svg", {viewBox: "0 0 34 12", "aria-hidden": "true"}, [drawn("line", {x1: 0, x2: 34, y1: 6, y2: 6,
        style: "stroke-width:2;stroke:" + series.colour + ";stroke-dasharray:" + (series.dash || "none")})]), series.name]);
    });
    box.replaceChildren(make("p", {"class": "title"}, [chart.title]), make("ul", {"class": "names"}, names),
      drawn("svg", {viewBox: "0 0 " + width + " " + height, style: "max-width:" + width + "px", role: "img",
                    "aria-label": chart.title + " over " + chart.x.label + "; the numbers are in the table"}, parts));
  }

  /* Three checks ------------------------------------------------------------------------------------------------------ */
  var checks = null, ticket = 0;
  function number(id) { return Number(byId(id).value); }
  /* Powers of two around the state's size, and the reader's n. */
  function countsFor(pairs, dimension) {
    var most = Math.max(pairs, Math.min(4 * dimension, 256)), counts = [pairs];
    for (var n = 1; n <= most; n *= 2) if (n !== pairs) counts.push(n);
    return counts.sort(function (a, b) { return a - b; });
  }
  function showRegrouped() {
    var one = checks.regrouped;
    byId("check-1").textContent = "Largest difference over " + checks.pairs + " outputs of " + checks.options.dimension + " channels: " +
        short(one.difference) + ", where an output is " + short(one.length) + " long on average: " +
        (one.difference < 1e-12 * Math.max(1, one.length) ? "equal but for rounding in float64." : "more than rounding.");
  }
  function showOverwrite() {
    byId("check-2").replaceChildren(table("n = " + checks.pairs + ", d = " + checks.options.dimension,
      ["rule", "to the new value", "to the old one", "to their sum", "cosine, new", "cosine, old"],
      lab.rules.map(function (rule) {
        var r = checks.overwrite[rule];
        return [NAMES[rule]].concat([r.to_newest, r.to_old, r.to_blend, r.cosine, r.cosine_old].map(function (v) { return fixed(v, 3); }));
      })));
    var sum = checks.overwrite.linear, delta = checks.overwrite.delta;
    byId("check-2-words").textContent = "Plain accumulation is as close to the old value as to the new one (cosines " + fixed(sum.cosine_old, 3) + " and " +
        fixed(sum.cosine, 3) + "): a blend. The delta rule has " + fixed(delta.cosine, 3) + " with the new value and " + fixed(delta.cosine_old, 3) +
        " with the old one. What is left of its distance comes from the other keys, which are not perpendicular.";
  }
  function showCapacity() {
    var d = checks.options.dimension, points = checks.capacity;
    var x = {label: "pairs n (" + "d = " + d + ")", low: points[0].pairs, high: points[points.length - 1].pairs,
             ticks: points.map(function (p) { return [p.pairs, String(p.pairs)]; })};
    if (x.low === x.high) x.high = x.low * 2;
    var series = function (member) {
      return lab.rules.map(function (rule) {
        return {name: NAMES[rule], colour: "var(--c-" + rule + ")", dash: DASHES[rule], dots: true,
                points: points.map(function (p) { return [p.pairs, p[rule][member]]; })};
      });
    };
    var mark = {at: d, text: "n = d"};
    showChart(byId("accuracy-chart"), {title: "Accuracy of recall", x: x, mark: mark, series: series("accuracy"),
      y: {low: 0, high: 1, log: false, text: function (v) { return v.toFixed(2); }}});
    var line = {name: "(n \u2212 1) / d, keys that share nothing", colour: "var(--ink)", dash: "1 4", points: points.map(function (p) { return [p.pairs, (p.pairs - 1) / d]; })};
    var largest = Math.max.apply(null, series("recall_error").concat([line]).map(function (s) {
      return Math.max.apply(null, s.points.map(function (p) { return p[1]; }));
    }));
    showChart(byId("error-chart"), {title: "Squared error of recall", x: x, mark: mark, series: series("recall_error").concat([line]),
      y: {low: 1e-3, high: Math.pow(10, Math.ceil(Math.log10(Math.max(largest, 1)))), log: true, text: short}});
    var headings = ["n", "n / d", "(n \u2212 1) / d"];
    lab.rules.forEach(function (rule) { headings.push(NAMES[rule] + ": accuracy", "error"); });
    byId("check-3").replaceChildren(table("Means over " + checks.options.trials + (checks.options.trials === 1 ? " trial" : " trials"), headings,
      points.map(function (p) {
        var row = [String(p.pairs), fixed(p.pairs / d, 2), fixed((p.pairs - 1) / d, 3)];
        lab.rules.forEach(function (rule) { row.push(fixed(p[rule].accuracy, 3), short(p[rule].recall_error)); });
        return row;
      })));
    var at = points.filter(function (p) { return p.pairs === checks.pairs; })[0];
    var shared = checks.options.concentration;
    byId("check-3-words").textContent = "At n = " + checks.pairs + ", n / d = " + fixed(checks.pairs / d, 2) + ": plain accumulation recalls " +
        fixed(100 * at.linear.accuracy, 1) + " % with error " + short(at.linear.recall_error) +
        (shared === 0 ? " (expected " + short((checks.pairs - 1) / d) + ")" : "") + ", the delta rule " + fixed(100 * at.delta.accuracy, 1) +
        " % with error " + short(at.delta.recall_error) + ". The fixed size of the state is the limit of both. " + (shared === 0
        ? "For random keys that are written once, every erase of the delta rule also takes a part of older values with it, so it favours what came last."
        : "Keys share a direction here: under plain accumulation every value piles up along it, and the error grows with n; the delta rule takes away what " +
          "lies there before it writes.");
  }
  function showChecks() {
    if (checks === null) return;
    showRegrouped();
    showOverwrite();
    showCapacity();
  }

  /* A part at a time, so that the page stays alive; a later order ends an earlier one. */
  function runChecks() {
    var mine = ++ticket;
    var options = {dimension: number("dimension"), trials: number("trials"), seed: number("seed"), concentration: number("concentration")};
    var given = {gate: number("check-gate"), gateRest: number("check-gate-rest"), beta: number("check-beta")};
    var pairs = number("pairs"), counts = countsFor(pairs, options.dimension);
    var result = {options: options, pairs: pairs, capacity: []};
    var parts = [function () { result.regrouped = lab.regrouped(options, pairs); },
                 function () { result.overwrite = lab.recall(given, options, pairs, true); }];
    counts.forEach(function (n) {
      parts.push(function () {
        var row = lab.recall(given, options, n, false);
        row.pairs = n;
        result.capacity.push(row);
      });
    });
    byId("check-progress").hidden = false;
    byId("check-status").textContent = "Computing \u2026";
    return new Promise(function (done) {
      function next(i) {
        if (mine !== ticket) return done(false);
        byId("check-progress").value = i / parts.length;
        if (i < parts.length) {
          parts[i]();
          setTimeout(next, 0, i + 1);
          return;
        }
        checks = result;
        byId("check-progress").hidden = true;
        byId("check-status").textContent = "Done: n = " + pairs + ", d = " + options.dimension + ", seed " + options.seed +
            (options.concentration > 0 ? ", keys that share a direction (" + options.concentration + ")" : "") + ", " + options.trials +
            (options.trials === 1 ? " trial." : " trials.");
        showChecks();
        done(true);
      }
      setTimeout(next, 0, 0);
    });
  }
  byId("check-form").addEventListener("submit", function (event) {
    event.preventDefault();
    lab.ready = runChecks();
  });

  /* Cost -------------------------------------------------------------------------------------------------------------- */
  var SHAPE = ["layers", "full", "heads", "kv-heads", "head-dim", "state-heads", "state-key", "state-value"];
  var PRESETS = [["Qwen3.5-9B (24 + 8)", [32, 8, 16, 4, 256, 32, 128, 128]],
                 ["SmolLM2-135M (all linear)", [30, 0, 9, 3, 64, 9, 64, 64]], ["SmolLM2-1.7B (18 + 6)", [24, 6, 32, 32, 64, 32, 64, 64]],
                 ["Llama 3.1 8B (24 + 8)", [32, 8, 32, 8, 128, 32, 128, 128]],
                 ["one head, d = 128", [1, 0, 1, 1, 128, 1, 128, 128]]];
  function costOf(shape, full, context) {
    var linear = shape.layers - full;
    return {cache: full * 2 * shape["kv-heads"] * shape["head-dim"] * context * shape["cache-bytes"],
            state: linear * shape["state-heads"] * shape["state-key"] * shape["state-value"] * shape["state-bytes"],
            flops: full * 4 * shape.heads * shape["head-dim"] * context +
                   linear * 7 * shape["state-heads"] * shape["state-key"] * shape["state-value"]};
  }
  function shapeNow() {
    var shape = {};
    SHAPE.concat(["cache-bytes", "state-bytes"]).forEach(function (id) { shape[id] = Math.max(id === "full" ? 0 : 1, Math.round(number(id)) || 0); });
    shape.full = Math.min(shape.full, shape.layers);
    return shape;
  }
  function kindsOf(shape) {
    var kinds = [["all full attention", shape.layers, "var(--c-linear)", ""]];
    if (shape.full > 0 && shape.full < shape.layers)
      kinds.push(["hybrid: " + (shape.layers - shape.full) + " linear + " + shape.full + " full", shape.full, "var(--c-gated_delta)", "7 3"]);
    kinds.push(["all linear", 0, "var(--c-delta)", "2 3"]);
    return kinds;
  }
  function costChart(box, title, shape, member, text) {
    var contexts = [], kinds = kindsOf(shape), values = [];
    for (var p = 7; p <= 20; p += 0.5) contexts.push(Math.pow(2, p));
    var series = kinds.map(function (kind) {
      return {name: kind[0], colour: kind[2], dash: kind[3], points: contexts.map(function (t) {
        var value = member(costOf(shape, kind[1], t));
        values.push(value);
        return [t, value];
      })};
    });
    var low = Math.pow(10, Math.floor(Math.log10(Math.min.apply(null, values)))), high = Math.pow(10, Math.ceil(Math.log10(Math.max.apply(null, values))));
    showChart(box, {title: title, series: series, mark: {at: contextNow(), text: "context"},
      x: {label: "tokens of context", low: 128, high: 1048576, ticks: [[128, "128"], [1024, "1K"], [8192, "8K"], [65536, "64K"], [524288, "512K"]]},
      y: {low: low, high: high > low ? high : low * 10, log: true, text: text}});
  }
  function contextNow() { return Math.round(Math.pow(2, slider("context"))); }
  function showCost() {
    var shape = shapeNow(), context = contextNow(), all = costOf(shape, shape.layers, context), none = costOf(shape, 0, context);
    byId("context-value").textContent = short(context);
    byId("context").setAttribute("aria-valuetext", short(context) + " tokens");
    byId("cost-table").replaceChildren(table("One sequence of " + short(context) + " tokens", ["model", "cache", "states", "together", "FLOPs a new token"],
      kindsOf(shape).map(function (kind) {
        var cost = costOf(shape, kind[1], context);
        return [kind[0], bytes(cost.cache), bytes(cost.state), bytes(cost.cache + cost.state), flops(cost.flops)];
      })));
    costChart(byId("bytes-chart"), "Memory of one sequence", shape, function (cost) { return cost.cache + cost.state; },
              bytes);
    costChart(byId("flops-chart"), "FLOPs of a new token in the attention", shape, function (cost) { return cost.flops; },
              function (v) { return withUnit(v, ["", "k", "M", "G", "T"], 1000); });
    var even = none.state / (all.cache / context), factor = shape.full > 0 ? shape.layers / shape.full : Infinity;
    byId("cost-words").textContent = "A cache of all layers reaches the size of all states after " + short(even) + " tokens; at " + short(context) +
        " it is " + short(all.cache / none.state) + " times as large. " + (shape.full > 0
        ? "With " + shape.full + " of " + shape.layers + " layers full, the cache is " + short(factor) + " times smaller than with all."
        : "Without a full layer there is no cache that grows.");
  }
  PRESETS.forEach(function (preset, i) { byId("preset").append(make("option", {value: i}, [preset[0]])); });
  byId("preset").append(make("option", {value: "own"}, ["your own"]));
  function usePreset() {
    var preset = PRESETS[byId("preset").value];
    if (preset) SHAPE.forEach(function (id, i) { byId(id).value = preset[1][i]; });
    showCost();
  }
  byId("preset").addEventListener("change", usePreset);
  byId("shape").addEventListener("input", function (event) {
    if (SHAPE.indexOf(event.target.id) >= 0) byId("preset").value = "own";
    if (event.target.id !== "preset") showCost();
  });

  function showExercises() {
    var numbers = 128 * 128, cache = 2 * 128 * 100000;
    byId("exercise-state").textContent = "128 \u00d7 128 = " + short(numbers) + " numbers. The cache holds 2 \u00d7 128 \u00d7 100,000 = " +
        cache.toLocaleString("en") + ", that is " + (cache / numbers).toLocaleString("en") + " times as many.";
    byId("exercise-hybrid").textContent = "8 of 32 layers keep a cache: " + 32 / 8 + " times smaller. That is why the course\u2019s hybrid lost only " +
        fixed(100 * (1 - 199 / 224), 0) + " % of its speed (224 to 199 tokens a second) when the context grew from 2.5k to 16k tokens.";
  }

  goTo(0);
  usePreset();
  showExercises();
  lab.ready = runChecks();
  var lastWidth = document.documentElement.clientWidth;
  addEventListener("resize", function () {
    if (document.documentElement.clientWidth === lastWidth) return;
    lastWidth = document.documentElement.clientWidth;
    showCost();
    showChecks();
  });
})();
