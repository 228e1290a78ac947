// One model is shown at a time.
const choices = [...document.querySelectorAll("button[data-shows]")];
const choose = name => {
  choices.forEach(button => button.setAttribute("aria-pressed", button.dataset.shows === name));
  document.querySelectorAll("[data-model]").forEach(part => { part.hidden = part.dataset.model !== name; });
};
choices.forEach(button => button.addEventListener("click", () => choose(button.dataset.shows)));
if (choices.length) choose(choices[0].dataset.shows);

// Pointing at a ROC curve shows its nearest point.
for (const figure of document.querySelectorAll("figure[data-hover]")) {
  const panels = JSON.parse(figure.dataset.hover);
  const image = figure.querySelector("img");
  const picture = figure.querySelector(".picture");
  const dot = Object.assign(document.createElement("div"), { className: "dot", hidden: true });
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  picture.append(dot, tip);

  const place = (panel, point, area) => {
    const [left, top, right, bottom] = panel.box;
    const at = panel.zoomed ? -Math.log10(1 - point[0]) : point[0];
    const x = (at - panel.x[0]) / (panel.x[1] - panel.x[0]);
    const y = Math.log(point[1] / panel.y[0]) / Math.log(panel.y[1] / panel.y[0]);
    return [area.width * (left + x * (right - left)), area.height * (bottom - y * (bottom - top))];
  };
  const show = event => {
    const area = image.getBoundingClientRect();
    const mouse = [event.clientX - area.left, event.clientY - area.top];
    let best = { distance: 40 };
    for (const panel of panels) for (const curve of panel.curves) for (const point of curve.points) {
      const at = place(panel, point, area);
      const distance = Math.hypot(at[0] - mouse[0], at[1] - mouse[1]);
      if (distance < best.distance) best = { distance, at, curve, point };
    }
    dot.hidden = tip.hidden = !best.curve;
    if (!best.curve) return;
    const [efficiency, rejection, threshold, passing] = best.point;
    dot.style.cssText = `left: ${best.at[0]}px; top: ${best.at[1]}px; background: ${best.curve.colour}`;
    tip.textContent = `${best.curve.label}\nε_S = ${efficiency}\n1/ε_B = ${rejection.toPrecision(4)}` +
      `\nthreshold ${threshold}\n${passing.toLocaleString("en")} background jets`;
    const isRight = best.at[0] > area.width / 2;
    const shift = isRight ? "translateX(calc(-100% - 24px))" : "none";
    tip.style.cssText = `top: ${best.at[1] + 12}px; left: ${best.at[0] + 12}px; transform: ${shift}`;
  };
  picture.addEventListener("mousemove", show);
  picture.addEventListener("mouseleave", () => { dot.hidden = tip.hidden = true; });
}
