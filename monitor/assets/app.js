'use strict';
// Takes the page anew each second, and puts what changed in place. Draws charts of the last ten
// minutes. Without it the page is whole, with the sample of its loading.
(() => {
  const INTERVAL = 1000;
  const KEPT_SECONDS = 600;
  const live = document.getElementById('live');
  const state = document.getElementById('state');

  // Makes one element like another. What stays keeps its focus and its place.
  function become(old, next) {
    for (const name of old.getAttributeNames()) {
      if (!next.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const name of next.getAttributeNames()) {
      const value = next.getAttribute(name);
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const from = [...old.childNodes];
    const to = [...next.childNodes];
    to.forEach((node, at) => {
      const there = from[at];
      if (!there) {
        old.append(document.importNode(node, true));
      } else if (there.nodeType !== node.nodeType || there.nodeName !== node.nodeName) {
        there.replaceWith(document.importNode(node, true));
      } else if (node.nodeType === Node.ELEMENT_NODE) {
        become(there, node);
      } else if (there.data !== node.data) {
        there.data = node.data;
      }
    });
    from.slice(to.length).forEach((node) => node.remove());
  }

  function show(text) {
    if (state.textContent !== text) {
      state.textContent = text;
      state.dataset.state = text;
    }
  }

  async function get(path) {
    const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error(`${response.status}`);
    return response;
  }

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function bytes(value) {
    let amount = value;
    for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
      if (amount < 1024) return `${Number(amount.toFixed(amount < 10 ? 1 : 0))} ${unit}`;
      amount /= 1024;
    }
    return `${amount.toFixed(1)} TiB`;
  }

  const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
  const plain = (value) => `${Number(value.toPrecision(3))}`;
  const percent = (value) => `${Math.round(value * 100)} %`;

  const CHARTS = {
    flow: {
      text: bytes,
      lines: [
        ['appended', 'appended to the region'],
        ['drained', 'written by drains'],
        ['written', 'written to extents'],
        ['read', 'read from extents'],
      ],
    },
    waits: {
      text: plain,
      lines: [
        ['throttled_ms', 'pace and space'],
        ['lock_wait_ms', 'locks of rows'],
      ],
    },
    latency: {
      text: plain,
      lines: [
        ['commit_p99_ms', 'commits'],
        ['get_p99_ms', 'look-ups'],
      ],
    },
    fill: {
      text: percent,
      lines: [
        ['region', 'region'],
        ['memory', 'memory limit'],
      ],
      range: [0, 1],
    },
  };

  const times = [];
  const series = {};
  let drawn = [];

  function options(chart, width) {
    const axis = { grid: { stroke: color('--line'), width: 1 }, stroke: color('--text') };
    const values = (_, ticks) => ticks.map(chart.text);
    const clocks = (_, ticks) => ticks.map(clock);
    const lines = chart.lines.map(([, label], at) => ({
      label,
      stroke: color(`--chart-${at + 1}`),
      dash: [[], [8, 4], [2, 3], [10, 3, 2, 3]][at],
      width: 2,
      value: (_, value) => (value == null ? '–' : chart.text(value)),
    }));
    const range = chart.range || ((_, least, most) => [0, most > 0 ? most * 1.1 : 1]);
    return {
      width,
      height: 170,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range } },
      axes: [
        { ...axis, space: 80, values: clocks },
        { ...axis, size: 64, space: 40, values },
      ],
      series: [{ label: 'at', value: (_, at) => (at == null ? '–' : clock(at)) }, ...lines],
    };
  }

  const data = (chart) => [times, ...chart.lines.map(([name]) => series[name] || [])];

  function draw() {
    drawn.forEach(({ plot }) => plot.destroy());
    drawn = [...document.querySelectorAll('[data-chart]')].map((place) => {
      const chart = CHARTS[place.dataset.chart];
      const plot = new uPlot(options(chart, place.clientWidth), data(chart), place);
      return { chart, place, plot };
    });
  }

  function add(history) {
    times.push(...history.at_ms.map((ms) => ms / 1000));
    const over = times.findIndex((at) => at >= times.at(-1) - KEPT_SECONDS);
    times.splice(0, Math.max(over, 0));
    for (const [name, numbers] of Object.entries(history.series)) {
      series[name] = [...(series[name] || []), ...numbers].slice(-times.length);
    }
    drawn.forEach(({ chart, place, plot }) => {
      plot.setData(data(chart));
      const last = chart.lines.map(([name, label]) => {
        const value = (series[name] || []).at(-1);
        return `${label} ${value == null ? '–' : chart.text(value)}`;
      });
      place.nextElementSibling.textContent = `Now: ${last.join(', ')}.`;
    });
  }

  async function step() {
    const text = await (await get('/')).text();
    const next = new DOMParser().parseFromString(text, 'text/html');
    become(live, next.getElementById('live'));
    const last = times.length ? Math.round(times[times.length - 1] * 1000) : 0;
    add(await (await get(`/history.json?after=${last}`)).json());
    show(next.getElementById('state').textContent);
  }

  async function run() {
    try {
      if (!document.hidden) await step();
    } catch (error) {
      show('no answer');
    }
    setTimeout(run, INTERVAL);
  }

  document.getElementById('charts').hidden = false;
  draw();
  const resized = new ResizeObserver(() => {
    for (const { place, plot } of drawn) {
      if (plot.width !== place.clientWidth) {
        plot.setSize({ width: place.clientWidth, height: 170 });
      }
    }
  });
  drawn.forEach(({ place }) => resized.observe(place));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  run();
})();
