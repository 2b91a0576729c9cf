"""Style and script of the HTML report. Colours have a contrast of 4.5 and more on their ground."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --panel: #f5f7f9; --text: #1c2128;
  --dim: #57606a; --line: #d5dae0; --busy: #b4e2cf; --sm: #3fae86; --mem: #0b4bb8;
  --peak: #a9c7f5; --none: #e3e7ec; --critical: #b3261e; --critical-ground: #fdecea;
  --warning: #7a4b00; --warning-ground: #fff3dc; --good: #0a6b48; --code: #e9edf2; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #10151b; --panel: #18202a;
  --text: #e6edf3; --dim: #a3afbb; --line: #33404e; --busy: #1c4a3a; --sm: #2b8a68;
  --mem: #9cc4ff; --peak: #2f5a99; --none: #263140; --critical: #ffb4ab;
  --critical-ground: #40151a; --warning: #f2c55c; --warning-ground: #352a0c; --good: #63d3a6;
  --code: #243040; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto;
  padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--text);
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p { margin: .3rem 0; }
.dim { color: var(--dim); } 
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
code { background: var(--code); color: var(--text); border-radius: 4px; padding: .1em .35em;
  display: inline-block; white-space: pre-wrap; user-select: all; }
td code { white-space: nowrap; }
.cost { font-weight: 600; } .wasteful { color: var(--critical); }
.finding { border-left: 4px solid var(--line); border-radius: 4px; padding: .5rem .9rem;
  margin: .6rem 0; }
.finding b { display: block; } .finding ul { margin: .3rem 0 0; padding-left: 1.1rem; }
.finding .level { font-size: .75rem; font-weight: 700; letter-spacing: .06em;
  text-transform: uppercase; }
.critical { border-left: 8px solid var(--critical); background: var(--critical-ground); }
.critical b { font-size: 1.15rem; }
.critical b, .critical .level { color: var(--critical); }
.warning { border-color: var(--warning); background: var(--warning-ground); }
.warning b, .warning .level { color: var(--warning); }
.info { padding-block: .2rem; } .info .level { color: var(--dim); margin-right: .5rem; }
.info b { display: inline; font-weight: 500; } .info > .dim { display: block; }
.good { color: var(--good); font-weight: 600; }
.critical code, .warning code { background: var(--ground); }
.lines { position: relative; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: .8rem 1rem; }
.lines pre { margin: 0; white-space: pre-wrap; user-select: all; }
.lines button { position: absolute; top: .5rem; right: .5rem; font: inherit; font-size: .85rem;
  color: var(--text); background: var(--ground); border: 1px solid var(--dim); border-radius: 5px;
  padding: .15rem .7rem; cursor: pointer; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: .5rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal; }
th { font-weight: 600; color: var(--dim); } td.words { min-width: 14rem; }
.bars { display: grid; grid-template-columns: max-content minmax(4rem, 1fr) max-content;
  gap: .4rem .9rem; align-items: center; }
.bars .note { grid-column: 2 / -1; margin-top: -.4rem; }
.bars .figure { text-align: left; }
.bar { position: relative; height: 1rem; background: var(--none); border-radius: 3px;
  overflow: hidden; }
.bar i { position: absolute; inset: 0 auto 0 0; background: var(--peak); }
.bar i + i { background: var(--mem); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1.2rem 2rem; }
figure { margin: 0; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 .9rem; }
.plot { display: grid; grid-template: 9rem 1.4rem / 2.2rem 1fr; column-gap: .3rem;
  font-size: .75rem; color: var(--dim); margin-top: .6rem; }
.plot svg { grid-area: 1 / 2; width: 100%; height: 100%; display: block; background: var(--panel); }
.y, .x { position: relative; } .x { grid-area: 2 / 2; }
.y span { position: absolute; right: 0; transform: translateY(-50%); }
.x span { position: absolute; top: .15rem; transform: translateX(-50%); white-space: nowrap; }
.x span.first { transform: none; } .x span.last { transform: translateX(-100%); }
.map .plot { grid-template: auto 1.4rem / minmax(2.2rem, max-content) 1fr; }
.map .plot svg { height: 0; min-height: 100%; }
.map .y div { height: 1.05rem; line-height: 1.05rem; text-align: right; white-space: pre;
  font-variant-numeric: tabular-nums; }
.flags { grid-area: 1 / 2; position: relative; pointer-events: none; }
.flags span { position: absolute; top: 0; transform: translate(-50%, -50%); pointer-events: auto; }
.flags span, .events b { font-size: .7rem; line-height: 1.2; font-weight: 700; padding: 0 .35em;
  border: 1px solid currentColor; border-radius: 1em; background: var(--ground);
  white-space: nowrap; cursor: default; }
.is-critical { color: var(--critical); } .is-warning { color: var(--warning); }
.is-info { color: var(--text); }
.events { columns: 24rem 3; column-gap: 2rem; font-variant-numeric: tabular-nums; }
.events p { break-inside: avoid; margin: 0; padding: .15rem 0; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin-bottom: .6rem; }
.key span::before { content: ""; display: inline-block; width: 1rem; height: .7rem;
  margin-right: .4rem; background: var(--swatch); }
.key .stroke::before { height: 0; vertical-align: middle; background: none;
  border-top: 2px solid var(--swatch); }
.key .dashed::before { border-top-style: dashed; }
.key .edged::before { border: 1px solid var(--line); }
details { margin-top: .4rem; } summary { cursor: pointer; }
hr { border: 0; border-top: 2px solid var(--line); margin: 3rem 0; }
@media (max-width: 520px) { .bars { grid-template-columns: max-content 1fr; }
  .bars .figure { grid-column: 2; margin-top: -.4rem; } .bars .note { grid-column: 2; }
  .lines button { position: static; margin-top: .5rem; } }
@page { size: A4; margin: 12mm; }
@media print { * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 9.5pt; line-height: 1.35; padding: 0; max-width: none; }
  code, pre { font-size: 8pt; } h1 { font-size: 14pt; } h2 { font-size: 11pt; margin: 10pt 0 3pt; }
  .finding { margin: 3pt 0; padding: 2pt 7pt; } .critical b { font-size: 10.5pt; }
  .charts { grid-template-columns: 1fr 1fr; gap: 5pt 14pt; }
  .plot { grid-template-rows: 66px 1.2rem; } .lines button, details { display: none; }
  .lines { padding: 4pt 8pt; } figure, .finding, .lines, tr, .bars { break-inside: avoid; }
  h2 { break-after: avoid; } hr { break-after: page; border: 0; margin: 0; }
  .events { columns: 2; } .flags span, .events b { font-size: 6.5pt; }
  .map .y div { height: 11px; line-height: 11px; font-size: 7pt; } td.words { min-width: 0; } }
"""

#: shows the buttons, which without it would do nothing. A file that was opened from a disk or an
#: attachment may not use the clipboard; there the selected lines are copied as by a key.
SCRIPT = """
for (const button of document.querySelectorAll(".lines button")) {
  button.hidden = false;
  button.onclick = () => {
    getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
  };
}
"""
