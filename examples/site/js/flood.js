// The model on the first page: the same stream of requests fills two queues. One accepts all of
// it; the other has little room and refuses the rest.
"use strict";

const CAPACITY = 1000;   // answers per second
const PATIENCE = 3;      // seconds until a reader leaves
const TANK = 4;          // seconds of waiting that fill a drawing

const number = new Intl.NumberFormat("en");

function basin(element) {
  const room = Number(element.dataset.room);
  const find = (selector) => element.querySelector(selector);
  const water = find(".tank i");
  const shown = { wait: find("[data-wait]"), useful: find("[data-useful]"), refused: find("[data-refused]") };
  let waiting = 0;

  // Lets `seconds` pass while `rate` requests arrive per second.
  function pass(seconds, rate) {
    const before = waiting + rate * seconds;
    const answered = Math.min(before, CAPACITY * seconds);
    const left = before - answered;
    waiting = Math.min(left, room);
    const wait = waiting / CAPACITY;
    return {
      wait,
      late: wait > PATIENCE,
      useful: wait > PATIENCE ? 0 : answered / seconds,
      refused: (left - waiting) / seconds,
    };
  }

  function show(now) {
    water.style.transform = `scaleY(${Math.min(waiting / CAPACITY / TANK, 1)})`;
    water.classList.toggle("late", now.late);
    shown.wait.textContent = now.wait < 1 ? `${Math.round(now.wait * 1000)} ms` : `${now.wait.toFixed(1)} s`;
    shown.wait.classList.toggle("bad", now.late);
    shown.useful.textContent = `${number.format(Math.round(now.useful))} per second`;
    shown.useful.classList.toggle("bad", now.late);
    shown.refused.textContent = `${number.format(Math.round(now.refused))} per second`;
  }

  return { pass, show };
}

function start(flood) {
  const slider = flood.querySelector("#rate");
  const text = flood.querySelector("#rate-text");
  const basins = [...flood.querySelectorAll(".basin")].map(basin);
  let last = 0;
  let painted = 0;

  function frame(time) {
    const seconds = Math.min(Math.max((time - last) / 1000, 0.001), 0.1);
    last = time;
    const rate = Number(slider.value);
    const states = basins.map((one) => one.pass(seconds, rate));
    // Numbers that change sixty times a second cannot be read.
    if (time - painted > 90) {
      painted = time;
      text.textContent = `${number.format(rate)} per second`;
      basins.forEach((one, index) => one.show(states[index]));
    }
    requestAnimationFrame(frame);
  }

  // The flood begins when somebody is there to see it.
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    last = performance.now();
    requestAnimationFrame(frame);
  }, { threshold: 0.25 });
  flood.hidden = false;
  basins.forEach((one) => one.show(one.pass(1, 0)));
  text.textContent = `${number.format(Number(slider.value))} per second`;
  seen.observe(flood);
}

start(document.getElementById("flood"));
