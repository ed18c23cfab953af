// A terminal in a container: xterm.js over a WebSocket, in the frames of Kubernetes' v5.channel.k8s.io.
const element = document.getElementById("terminal");
const [STDIN, STDERR, STATUS, RESIZE] = [0, 2, 3, 4];

// xterm.js writes rules into elements of style, which the policy of this page forbids. Sheets of a script are allowed.
const createElement = document.createElement.bind(document);
document.createElement = (name, ...rest) => {
  if (name !== "style") return createElement(name, ...rest);
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const style = createElement("template");
  Object.defineProperty(style, "textContent", { set: (text) => sheet.replaceSync(text) });
  style.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    Element.prototype.remove.call(style);
  };
  return style;
};

const { Terminal } = await import(element.dataset.xterm);
const { FitAddon } = await import(element.dataset.fit);
const paint = getComputedStyle(element);
const terminal = new Terminal({
  cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
  fontFamily: paint.fontFamily, fontSize: 14, lineHeight: 1.2, screenReaderMode: true,
  theme: { background: paint.backgroundColor, foreground: paint.color, cursor: paint.color },
});
const fit = new FitAddon();
const state = document.getElementById("terminal-state");
const encoder = new TextEncoder();
let socket = null;

function send(channel, content) {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const frame = new Uint8Array(content.length + 1);
  frame[0] = channel;
  frame.set(content, 1);
  socket.send(frame);
}

function show(frame) {
  const channel = frame[0], content = frame.subarray(1);
  if (channel <= STDERR) terminal.write(content);
  else if (channel === STATUS) {
    const status = JSON.parse(new TextDecoder().decode(content));
    state.textContent = status.status === "Success" ? "The program has ended." : status.message;
  }
}

function connect(form) {
  socket?.close();
  terminal.reset();
  fit.fit();
  const asked = new URLSearchParams([...new FormData(form)].filter(([name, text]) => text && name !== "command"));
  asked.set("tty", "true");
  asked.set("rows", terminal.rows);
  asked.set("columns", terminal.cols);
  const opened = new WebSocket(`${element.dataset.path}?${asked}`, "v5.channel.k8s.io");
  socket = opened;
  opened.binaryType = "arraybuffer";
  state.textContent = "Connecting …";
  opened.addEventListener("open", () => { state.textContent = "Connected."; terminal.focus(); });
  opened.addEventListener("message", (event) => { if (socket === opened) show(new Uint8Array(event.data)); });
  opened.addEventListener("close", (event) => {
    if (socket !== opened || event.code === 1000) return;
    state.textContent = event.reason || "The connection is lost, or was refused: connect again.";
  });
}

// A shell needs the Tab key: without one it goes on as elsewhere, and after Escape it leaves the terminal.
let before = "";
terminal.attachCustomKeyEventHandler((event) => {
  if (event.type !== "keydown" || event.key === "Shift") return true;
  const leaves = event.key === "Tab" && (before === "Escape" || socket?.readyState !== WebSocket.OPEN);
  before = event.key;
  return !leaves;
});
terminal.loadAddon(fit);
element.hidden = false;
document.getElementById("terminal-keys").hidden = false;
terminal.open(element);
fit.fit();
terminal.onData((text) => send(STDIN, encoder.encode(text)));
terminal.onBinary((text) => send(STDIN, Uint8Array.from(text, (one) => one.charCodeAt(0))));
terminal.onResize(({ rows, cols }) => send(RESIZE, encoder.encode(JSON.stringify({ Width: cols, Height: rows }))));
new ResizeObserver(() => fit.fit()).observe(element);
const button = document.getElementById("connect");
button.hidden = false;
button.addEventListener("click", () => connect(button.form));
