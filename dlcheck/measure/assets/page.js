// Draws the figures of the page from the data that stands in it. All that they show stands in tables too.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const css = (name) => `var(--${name})`;
  const verdictColors = {
    "confirmed": css("confirmed"), "refuted-no-effect": css("refuted-no-effect"),
    "refuted-harmful": css("refuted-harmful"), "inconclusive": css("inconclusive"),
  };
  const verdictSymbols = {
    "confirmed": "circle", "refuted-no-effect": "square", "refuted-harmful": "triangle", "inconclusive": "diamond",
  };
  const colorOf = (verdict) => verdictColors[verdict] || css("other");
  const symbolOf = (verdict) => verdictSymbols[verdict] || "star";
  // Arms by their name: A and B are the same in every figure, controls take what is left.
  const armColors = ["a", "b", "c", "d", "other"].map(css);
  const armSymbols = ["square", "circle", "triangle", "diamond", "star"];
  const armDashes = ["5,3", "none", "1,3", "8,3,2,3", "none"];
  const place = (arms, arm) => {
    const others = arms.filter((one) => one !== "A" && one !== "B");
    const number = arm === "A" ? 0 : arm === "B" ? 1 : 2 + others.indexOf(arm);
    return Math.min(number, armColors.length - 1);
  };
  const unique = (values) => [...new Set(values)];
  const finite = (value) => typeof value === "number" && Number.isFinite(value);

  function widthOf(figure) {
    return Math.max(260, Math.floor(figure.getBoundingClientRect().width || figure.parentElement.clientWidth || 640));
  }

  function swatch(symbol, color, dash) {
    const svg = d3.create("svg").attr("viewBox", "-9 -6 18 12").attr("aria-hidden", "true");
    if (dash) svg.append("line").attr("x1", -9).attr("x2", 9).attr("stroke", color).attr("stroke-width", 1.5).attr("stroke-dasharray", dash);
    const shapes = { circle: d3.symbolCircle, square: d3.symbolSquare, triangle: d3.symbolTriangle, diamond: d3.symbolDiamond, star: d3.symbolStar };
    svg.append("path").attr("d", d3.symbol(shapes[symbol], 42)()).attr("fill", color);
    return svg.node();
  }

  function band(color, height) {
    const svg = d3.create("svg").attr("viewBox", "-9 -6 18 12").attr("aria-hidden", "true");
    svg.append("rect").attr("x", -9).attr("y", -height / 2).attr("width", 18).attr("height", height).attr("fill", color);
    return svg.node();
  }

  function legend(figure, entries) {
    const list = document.createElement("ul");
    list.className = "legend";
    for (const [mark, text] of entries) {
      const item = document.createElement("li");
      item.append(mark, " " + text);
      list.append(item);
    }
    figure.append(list);
  }

  function show(figure, plot) {
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-labelledby", figure.querySelector("figcaption").id);
    figure.append(plot);
  }

  // Ratios that people know, as many as there is room for, from 1 outwards.
  function ticksOf(low, high, pixels) {
    const near = [1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100];
    const powers = d3.range(3, 16).map((power) => 10 ** power);
    const perTick = (Math.log(high / low) * 44) / Math.max(pixels, 1);
    const kept = [1];
    let lastUp = 1, lastDown = 1;
    for (const value of [...near.slice(1), ...powers]) {
      const down = value === 3 ? 1 / 3 : 1 / value;
      if (value < high && Math.log(value / lastUp) >= perTick) kept.push(lastUp = value);
      if (down > low && Math.log(lastDown / down) >= perTick) kept.push(lastDown = down);
    }
    return kept;
  }
  const ratioText = (value) => (value >= 1e5 || value < 1e-4 ? value.toExponential(0) : String(+value.toPrecision(value < 1 ? 2 : 3)));

  function forest(figure) {
    const rows = data.records.filter((row) => finite(row.ratio) && row.ratio > 0);
    if (!rows.length) return;
    const width = widthOf(figure);
    const narrow = width < 640;
    const known = rows.flatMap((row) => [row.ratio, row.low, row.high, row.aaLow, row.aaHigh]).filter((value) => finite(value) && value > 0);
    // One effect of a million must not press all others together: beyond these it is written out instead.
    const low = Math.max(Math.min(...known, 0.85) / 1.03, 1 / 64);
    const high = Math.min(Math.max(...known, 1 / 0.85) * 1.03, 64);
    const within = (value) => Math.min(Math.max(value, low), high);
    const clamp = (value, otherwise) => (finite(value) && value > 0 ? within(value) : otherwise);
    const items = rows.map((row) => ({
      ...row, from: clamp(row.low, low), to: clamp(row.high, high),
      aaFrom: row.aaLow === null ? NaN : clamp(row.aaLow, low), aaTo: row.aaHigh === null ? NaN : clamp(row.aaHigh, high),
      at: within(row.ratio), color: colorOf(row.verdict), symbol: symbolOf(row.verdict),
    }));
    const beyond = items.filter((row) => row.at !== row.ratio);
    const told = (row) => `${row.ratio < 1 ? "◂ " : ""}${+row.ratio.toPrecision(2)}${row.ratio > 1 ? " ▸" : ""}`;
    const longest = Math.max(...rows.map((row) => row.label.length));
    const left = narrow ? 8 : Math.min(Math.ceil(longest * 7.2) + 12, Math.floor(width * 0.42));
    const ticks = ticksOf(low, high, width - left - 24);
    const room = narrow ? Math.floor((width - 16) / 6.8) : Math.floor((left - 12) / 6.8);
    const cut = (text) => {
      // The rule in front and the end of the path say most.
      const head = text.slice(0, text.indexOf(" ") + 1).slice(0, 10);
      return text.length > room ? `${head}…${text.slice(head.length + 1 - room)}` : text;
    };
    const labels = new Map(items.map((row) => [row.key, cut(row.label)]));
    const step = narrow ? 44 : 30;
    show(figure, legendThen(figure, items, () => Plot.plot({
      width, height: items.length * step + 64, marginLeft: left, marginRight: 24, marginTop: 26, marginBottom: 38,
      x: { type: "log", domain: [low, high], axis: null },
      y: { type: "band", domain: items.map((row) => row.key), axis: narrow ? null : "left", tickSize: 0, label: null, tickFormat: (key) => labels.get(key) },
      marks: [
        Plot.rect([data.margin], { x1: (margin) => 1 / (1 + margin), x2: (margin) => 1 + margin, fill: css("band") }),
        Plot.gridX(ticks, { stroke: "currentColor", strokeOpacity: 0.12 }),
        // As texts of its own: the format of a logarithmic scale leaves out some.
        Plot.axisX(ticks, { text: ticks.map(ratioText), label: null }),
        Plot.text([narrow ? "← suggested better · written better →" : "← the suggestion is better (suggested / written) as written is better →"], { frameAnchor: "bottom", dy: 36, fill: "currentColor" }),
        Plot.ruleX([1], { stroke: "currentColor", strokeOpacity: 0.7 }),
        Plot.ruleY(items.filter((row) => finite(row.aaFrom)), { y: "key", x1: "aaFrom", x2: "aaTo", stroke: css("aa"), strokeWidth: 10, strokeOpacity: 0.55 }),
        Plot.ruleY(items, { y: "key", x1: "from", x2: "to", stroke: "color", strokeWidth: 2 }),
        Plot.tickX(items.filter((row) => finite(row.low) && row.from === row.low), { y: "key", x: "from", stroke: "color", insetTop: step * 0.28, insetBottom: step * 0.28, strokeWidth: 2 }),
        Plot.tickX(items.filter((row) => finite(row.high) && row.to === row.high), { y: "key", x: "to", stroke: "color", insetTop: step * 0.28, insetBottom: step * 0.28, strokeWidth: 2 }),
        Plot.dot(items, { y: "key", x: "at", fill: "color", stroke: css("paper"), symbol: "symbol", r: 6, title: (row) => `${row.label}: ${row.said}` }),
        Plot.text(beyond.filter((row) => row.ratio < 1), { y: "key", x: "at", text: told, dx: 10, textAnchor: "start", fill: "currentColor" }),
        Plot.text(beyond.filter((row) => row.ratio > 1), { y: "key", x: "at", text: told, dx: -10, textAnchor: "end", fill: "currentColor" }),
        ...(narrow ? [Plot.text(items, { y: "key", frameAnchor: "left", text: (row) => labels.get(row.key), textAnchor: "start", dy: -15, fill: "currentColor" })] : []),
      ],
      color: { type: "identity" }, symbol: { type: "identity" },
    })));
  }

  function legendThen(figure, items, draw) {
    const verdicts = unique(items.map((row) => row.verdict));
    const entries = verdicts.map((verdict) => [swatch(symbolOf(verdict), colorOf(verdict)), data.verdicts[verdict]]);
    entries.push([band(css("band"), 12), `margin of ${Math.round(100 * data.margin)} %`]);
    if (items.some((row) => finite(row.aaFrom))) entries.push([band(css("aa"), 6), "A/A: written against itself"]);
    legend(figure, entries);
    return draw();
  }

  const median = (values) => d3.median(values);

  function armLegend(figure, record, arms, dashed) {
    legend(figure, arms.map((arm) => {
      const at = place(arms, arm);
      return [swatch(armSymbols[at], armColors[at], dashed && armDashes[at]), record.arms[arm] ? `${arm}: ${record.arms[arm]}` : arm];
    }));
  }

  function blocks(figure, record) {
    const points = record.blocks.filter((block) => finite(block.t));
    if (points.length < 2) return;
    const arms = unique(points.map((block) => block.arm)).sort();
    const shift = (arm) => (arms.length > 1 ? (arms.indexOf(arm) / (arms.length - 1) - 0.5) * 0.36 : 0);
    const spots = points.map((block) => ({ ...block, x: block.round + shift(block.arm), color: armColors[place(arms, block.arm)], symbol: armSymbols[place(arms, block.arm)] }));
    const middles = arms.flatMap((arm) => d3.rollups(points.filter((block) => block.arm === arm), (group) => median(group.map((one) => one.t)), (block) => block.round)
      .map(([round, t]) => ({ arm, t, x: round + shift(arm) })).sort((one, other) => one.x - other.x));
    const rounds = unique(points.map((block) => block.round)).sort((one, other) => one - other);
    const width = Math.min(widthOf(figure), 760);
    armLegend(figure, record, arms, true);
    show(figure, Plot.plot({
      width, height: 280, marginLeft: 56, marginBottom: 36,
      x: { domain: [rounds[0] - 0.5, rounds[rounds.length - 1] + 0.5], ticks: rounds.length > 14 ? undefined : rounds, tickFormat: (round) => (Number.isInteger(round) ? String(round + 1) : ""), label: "round", labelAnchor: "right", labelArrow: "none" },
      y: { label: record.unit, zero: true, nice: true, grid: true, labelArrow: "none" },
      marks: [
        Plot.ruleY([0], { strokeOpacity: 0.5 }),
        ...arms.map((arm) => Plot.line(middles.filter((one) => one.arm === arm), { x: "x", y: "t", stroke: armColors[place(arms, arm)], strokeWidth: 1.5, strokeDasharray: armDashes[place(arms, arm)] })),
        Plot.dot(spots, { x: "x", y: "t", fill: "color", symbol: "symbol", r: 3.5, fillOpacity: 0.85, title: (one) => `${one.arm}, round ${one.round + 1}: ${+one.t.toPrecision(4)} ${record.unit}` }),
      ],
      color: { type: "identity" }, symbol: { type: "identity" },
    }));
  }

  function time(figure, record) {
    if (!record.parts.length) return;
    const arms = unique(record.parts.map((part) => part.arm)).sort();
    const names = unique(record.parts.map((part) => part.name));
    const bars = record.parts.map((part) => ({ ...part, color: armColors[place(arms, part.arm)] }));
    const width = Math.min(widthOf(figure), 760);
    armLegend(figure, record, arms, false);
    show(figure, Plot.plot({
      width, height: names.length * (arms.length * 20 + 14) + 46, marginLeft: 132, marginRight: 72, marginBottom: 36,
      x: { label: `${record.partsUnit} per block (median)`, grid: true, zero: true, labelArrow: "none", ticks: width < 500 ? 3 : undefined },
      y: { domain: arms, axis: null, padding: 0.12 },
      fy: { domain: names, label: null, padding: 0.2 },
      marks: [
        Plot.barX(bars, { fy: "name", y: "arm", x: "value", fill: "color", title: (bar) => `${bar.arm}, ${bar.name}: ${bar.text}` }),
        Plot.text(bars, { fy: "name", y: "arm", x: "value", text: (bar) => `${bar.arm} ${bar.text}`, textAnchor: "start", dx: 5, fill: "currentColor" }),
        Plot.ruleX([0]),
        Plot.axisFy({ anchor: "left", tickSize: 0, label: null }),
      ],
      color: { type: "identity" },
    }));
  }

  function memory(figure, record) {
    const points = record.memory.filter((point) => finite(point.pss));
    if (points.length < 2) return;
    const arms = unique(points.map((point) => point.arm)).sort();
    const spots = points.map((point) => ({ ...point, series: `${point.arm} ${point.round}`, color: armColors[place(arms, point.arm)], symbol: armSymbols[place(arms, point.arm)] }));
    const width = Math.min(widthOf(figure), 760);
    armLegend(figure, record, arms, true);
    show(figure, Plot.plot({
      width, height: 280, marginLeft: 56, marginBottom: 36,
      x: { label: "batches", labelArrow: "none", nice: true, labelAnchor: "right" },
      y: { label: record.memoryUnit, zero: true, nice: true, grid: true, labelArrow: "none" },
      marks: [
        Plot.ruleY([0], { strokeOpacity: 0.5 }),
        ...arms.map((arm) => Plot.line(spots.filter((one) => one.arm === arm), { x: "batches", y: "pss", z: "series", sort: "batches", stroke: armColors[place(arms, arm)], strokeWidth: 1.5, strokeDasharray: armDashes[place(arms, arm)] })),
        Plot.dot(spots, { x: "batches", y: "pss", fill: "color", symbol: "symbol", r: 3.5, title: (one) => `${one.arm}, round ${one.round + 1}, ${one.batches} batches: ${+one.pss.toPrecision(4)} ${record.memoryUnit}` }),
      ],
      color: { type: "identity" }, symbol: { type: "identity" },
    }));
  }

  const kinds = { forest, blocks, time, memory };

  function draw(figure) {
    for (const old of figure.querySelectorAll(":scope > svg, :scope > .legend, :scope > figure")) old.remove();
    figure.hidden = false;
    try {
      kinds[figure.dataset.figure](figure, data.records[Number(figure.dataset.record)]);
    } catch (error) {
      console.error(error);
    }
    // What had nothing to draw, or failed, leaves the tables to speak.
    figure.hidden = !figure.querySelector("svg[role]");
    figure.dataset.drawn = String(window.innerWidth);
  }

  function drawAll() {
    for (const figure of document.querySelectorAll("figure[data-figure]")) {
      const folded = figure.closest("details:not([open])");
      if (!folded && figure.dataset.drawn !== String(window.innerWidth)) draw(figure);
    }
  }

  document.addEventListener("toggle", drawAll, true);
  let waiting = 0;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 150); });
  // On paper nothing can be unfolded.
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details.record")) part.open = true;
    drawAll();
  });
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches("details.record")) { target.open = true; target.scrollIntoView(); }
  };
  window.addEventListener("hashchange", reveal);
  reveal();
  drawAll();
})();
