/* Brings the figures of a page to life without a kernel.
 *
 * Every <figure class="wp-figure"> carries its states as JSON. Larger parts of the figures
 * stand once in a pool and are referred to as {"$": number}. The script puts native inputs in
 * place, draws the state that they point at, and keeps the reading beside it in step. */
(function () {
  "use strict";

  const NARROW = 640;
  const CONFIG = { displayModeBar: false, responsive: true };

  /* The figure of a tree with references into the pool. */
  function resolve(node, pool) {
    if (Array.isArray(node)) return node.map((item) => resolve(item, pool));
    if (node === null || typeof node !== "object") return node;
    if ("$" in node) return resolve(pool[node.$], pool);
    const whole = {};
    for (const key of Object.keys(node)) whole[key] = resolve(node[key], pool);
    return whole;
  }

  let printing = false;

  function theme() {
    if (printing) return "light";
    const chosen = document.documentElement.dataset.theme;
    return chosen === "dark" ? "dark" : "light";
  }

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  /* A figure that cannot be drawn says so, and leaves the others alone. */
  function guarded(root, action) {
    try {
      action();
    } catch (error) {
      root.querySelector(".wp-plot").textContent = `The figure cannot be drawn: ${error.message}`;
    }
  }

  class Figure {
    constructor(root) {
      this.root = root;
      this.data = JSON.parse(root.querySelector(".wp-data").textContent);
      this.plot = root.querySelector(".wp-plot");
      this.reading = root.querySelector(".wp-reading");
      this.inputs = this.data.controls.map((control) => this.makeInput(control));
      if (this.inputs.length) this.addReset();
    }

    makeInput(control) {
      const id = `${this.root.id}-${control.name}`;
      const choice = control.kind === "select";
      const input = choice
        ? element("select", { id }, ...control.texts.map((text) => new Option(text)))
        : element("input", { id, type: "range", min: 0, max: control.texts.length - 1, step: 1 });
      input.autocomplete = "off"; /* a page that is come back to starts anew */
      if (choice) input.selectedIndex = control.start;
      else input.value = control.start;
      const label = element("label", { htmlFor: id, textContent: control.label });
      const shown = element("output", { htmlFor: id });
      for (const event of ["input", "change"]) input.addEventListener(event, () => this.changed());
      const parts = choice ? [label, input] : [label, input, shown];
      this.root.querySelector(".wp-controls").append(
        element("div", { className: "wp-control" }, ...parts));
      return { control, input, shown, choice };
    }

    addReset() {
      const button = element("button", { type: "button", textContent: "Reset" });
      button.addEventListener("click", () => {
        for (const { control, input, choice } of this.inputs) {
          if (choice) input.selectedIndex = control.start;
          else input.value = control.start;
        }
        this.changed();
      });
      this.root.querySelector(".wp-controls").append(button);
    }

    /* The state that the inputs point at: the last control moves fastest. */
    state() {
      return this.inputs.reduce((place, { control, input, choice }) => {
        const position = choice ? input.selectedIndex : Number(input.value);
        return place * control.texts.length + position;
      }, 0);
    }

    changed() {
      this.tell();
      if (this.waiting) return;
      this.waiting = requestAnimationFrame(() => {
        this.waiting = null;
        this.draw();
      });
    }

    tell() {
      for (const { control, input, shown, choice } of this.inputs) {
        if (choice) continue;
        const text = control.texts[Number(input.value)];
        shown.textContent = text;
        input.setAttribute("aria-valuetext", text);
      }
      if (this.reading) this.reading.textContent = this.data.readings[this.state()];
    }

    draw() {
      if (!window.Plotly) {
        this.plot.textContent = "The figure cannot be drawn: plotly.js was not found beside the page.";
        return;
      }
      if (!this.alive) this.plot.textContent = "";
      this.alive = true;
      const figure = resolve(this.data.states[this.state()], this.data.pool);
      const template = window.workingPapers[theme()];
      const layout = { height: template.layout.height, ...figure.layout, template };
      /* Several panels need room: on a phone they are moved sideways instead of squeezed. */
      if (layout.xaxis2 && this.plot.clientWidth < NARROW && !printing) {
        layout.width = NARROW;
        this.plot.tabIndex = 0;
      }
      return window.Plotly.react(this.plot, figure.data, layout, CONFIG).then(() => {
        this.root.dataset.drawn = this.state();
      });
    }
  }

  /* Some of the theme's controls carry a name that hides their text, or none at all. */
  function nameControls() {
    for (const node of document.querySelectorAll("button[aria-label], summary[aria-label]")) {
      if (node.textContent.trim()) node.removeAttribute("aria-label");
    }
    for (const summary of document.querySelectorAll("summary")) {
      if (!summary.textContent.trim()) summary.setAttribute("aria-label", "Show the pages below");
    }
    for (const list of document.querySelectorAll(".citation-list")) list.removeAttribute("role");
    for (const button of document.querySelectorAll(".theme-switch-button")) {
      button.removeAttribute("aria-label"); /* its icons carry the name of the present mode */
    }
  }

  let started = false;
  function start() {
    if (started) return;
    started = true;
    const figures = new Map();
    for (const root of document.querySelectorAll(".wp-figure")) {
      /* Two figures may have one title; their parts are still told apart. */
      const first = document.getElementById(root.id);
      if (first !== root) root.id += `-${figures.size + 1}`;
      guarded(root, () => {
        const figure = new Figure(root);
        figures.set(root, figure);
        figure.tell();
      });
    }
    /* Figures far below are drawn when the reader comes near them. */
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        watch.unobserve(entry.target);
        guarded(entry.target, () => figures.get(entry.target).draw());
      }
    }, { rootMargin: "800px" });
    /* What the reader looks at already does not wait for MathJax; the observer would. */
    for (const [root, figure] of figures) {
      const { top, bottom } = root.getBoundingClientRect();
      if (bottom > 0 && top < window.innerHeight) guarded(root, () => figure.draw());
      else watch.observe(root);
    }
    const redraw = () => figures.forEach((figure, root) => {
      if (figure.alive) guarded(root, () => figure.draw());
    });
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    window.addEventListener("resize", () => {
      clearTimeout(start.later);
      start.later = setTimeout(redraw, 200);
    });
    /* On paper all figures are there, as on a light page. */
    window.addEventListener("beforeprint", () => {
      printing = true;
      figures.forEach((figure, root) => guarded(root, () => figure.draw()));
    });
    window.addEventListener("afterprint", () => {
      printing = false;
      redraw();
    });
  }

  /* templates.js, which comes after plotly.js, sends the first of these before MathJax begins. */
  window.addEventListener("workingpapers", start);
  document.addEventListener("DOMContentLoaded", () => {
    nameControls();
    start();
  });
})();
