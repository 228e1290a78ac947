// Jets: particles in the plane of eta and phi. Names only ever become text, never markup.
{
  const jets = JSON.parse(document.getElementById("jets-data").textContent);
  const find = id => document.getElementById(id);
  const [jetMenu, blockMenu, headMenu, areaMenu] = ["jet", "block", "head", "area"].map(find);
  const plane = find("plane"), scores = find("scores"), tip = find("particle");
  const middle = 310, radius = 290;

  const add = (parent, name, attributes, text) => {
    const node = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const fill = (menu, names) => {
    const before = menu.selectedIndex;
    menu.replaceChildren(...names.map(name => Object.assign(document.createElement("option"), { textContent: name })));
    menu.selectedIndex = before >= 0 && before < names.length ? before : 0;
  };
  const current = () => jets[jetMenu.selectedIndex];
  // What the area of a particle can stand for: its pT, or the class token's attention in a block and head.
  const areas = jet => [["pT", jet.pt], ...(jet.attributions ? [["|sum of integrated gradients|", jet.attributions.map(
    row => Math.abs(row.reduce((sum, value) => sum + value, 0)))]] : []), ...(jet.attention?.token ?? []).flatMap(
    block => block.heads.map((values, head) => [`class token, ${block.name}, ${head ? `head ${head}` : "all heads"}`, values]))];

  // The outline of a subjet: the convex hull of its particles.
  const hull = points => {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const half = list => list.reduce((kept, point) => {
      const turn = (a, b) => (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0]);
      while (kept.length > 1 && turn(kept.at(-2), kept.at(-1)) <= 0) kept.pop();
      return [...kept, point];
    }, []);
    return [...half(sorted).slice(0, -1), ...half(sorted.reverse()).slice(0, -1)];
  };
  const place = (jet, i, scale) => [middle + jet.x[i] * scale, middle - jet.y[i] * scale];

  const describe = (jet, i) => {
    const lines = [`${jet.kinds[i]}, pT ${jet.pt[i]} GeV${jet.displaced[i] ? ", displaced" : ""}`];
    Object.entries(jet.features).forEach(([name, values], feature) => {
      const added = jet.attributions?.[i][feature];
      lines.push(`${name} = ${values[i]}${added === undefined ? "" : `   adds ${added > 0 ? "+" : ""}${added}`}`);
    });
    return lines.join("\n");
  };
  const point = (jet, i, circle) => {
    tip.textContent = describe(jet, i);
    tip.hidden = false;
    const [box, at] = [plane.parentNode.getBoundingClientRect(), circle.getBoundingClientRect()];
    const top = Math.max(0, Math.min(at.top - box.top, box.height - tip.offsetHeight));
    tip.style.cssText = `left: ${at.right - box.left + 8}px; top: ${top}px`;
  };

  const drawPlane = jet => {
    plane.replaceChildren();
    const far = Math.max(0.2, 1.08 * Math.max(...jet.x.map(Math.abs), ...jet.y.map(Math.abs))), scale = radius / far;
    const bar = far > 0.5 ? 0.2 : 0.1;
    add(plane, "circle", { cx: middle, cy: middle, r: 0.8 * scale, fill: "none", stroke: "#bbb" });
    add(plane, "text", { x: 560, y: 612, class: "faint" }, "Δη →");
    add(plane, "line", { x1: 8, y1: 596, x2: 8 + bar * scale, y2: 596, stroke: "#5d6675", "stroke-width": 2 });
    add(plane, "text", { x: 8, y: 613, class: "faint" }, `${bar}`);
    add(plane, "text", { x: 4, y: 16, class: "faint" }, "Δφ ↑");
    for (const number of new Set(jet.subjets ?? [])) {
      const inside = jet.x.map((_, i) => i).filter(i => jet.subjets[i] === number).map(i => place(jet, i, scale));
      add(plane, "polygon", { points: (inside.length > 2 ? hull(inside) : inside).join(" "), fill: "#8883", stroke: "#8888",
        "stroke-width": 16, "stroke-linejoin": "round", opacity: 0.35 });
    }
    const block = jet.attention?.blocks[blockMenu.selectedIndex];
    for (const [i, j, weight] of block?.heads[headMenu.selectedIndex] ?? []) {
      const [[x1, y1], [x2, y2]] = [place(jet, i, scale), place(jet, j, scale)];
      add(plane, "line", { class: "link", x1, y1, x2, y2, stroke: "#59338c", "stroke-width": 0.5 + 6 * weight, opacity: Math.min(1, 0.15 + weight) });
    }
    const values = areas(jet)[areaMenu.selectedIndex][1], most = Math.max(...values, 1e-12);
    const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a]);
    for (const i of order) {
      const [cx, cy] = place(jet, i, scale);
      const circle = add(plane, "circle", { class: "particle", cx, cy, r: Math.sqrt(12 + 480 * values[i] / most), fill: jet.colours[i],
        "fill-opacity": 0.85, stroke: jet.displaced[i] ? "#000" : "#fff", "stroke-width": jet.displaced[i] ? 2 : 1, tabindex: 0 });
      for (const event of ["mouseenter", "focus"]) circle.addEventListener(event, () => point(jet, i, circle));
      for (const event of ["mouseleave", "blur"]) circle.addEventListener(event, () => { tip.hidden = true; });
    }
  };
  const drawScores = jet => {
    scores.replaceChildren();
    const shown = [...jet.scores].sort((a, b) => b[1] - a[1]).slice(0, 20), step = Math.min(34, 580 / shown.length);
    shown.forEach(([name, score], row) => {
      const y = 24 + row * step;
      add(scores, "text", { x: 110, y: y + 5, "text-anchor": "end" }, name.length > 14 ? `${name.slice(0, 13)}…` : name);
      add(scores, "rect", { x: 118, y: y - 8, width: 190 * score, height: 16, fill: name === jet.label ? "#1f5fa8" : "#b8c4d6" });
      add(scores, "text", { x: 124 + 190 * score, y: y + 5 }, score);
    });
  };
  const draw = () => { tip.hidden = true; drawPlane(current()); };
  const choose = () => {
    const jet = current();
    find("jet-facts").textContent = jet.facts;
    if (blockMenu && jet.attention) {
      fill(blockMenu, jet.attention.blocks.map(block => block.name));
      fill(headMenu, jet.attention.blocks[0].heads.map((_, head) => head ? `${head}` : "mean of all"));
    }
    fill(areaMenu, areas(jet).map(([name]) => name));
    drawScores(jet);
    draw();
  };
  if (jets.length) {
    fill(jetMenu, jets.map(jet => jet.title));
    jetMenu.addEventListener("change", choose);
    for (const menu of [blockMenu, headMenu, areaMenu]) menu?.addEventListener("change", draw);
    choose();
  }
}
