// Shows the buttons, which without it would do nothing. A file that was opened from a disk or an
// attachment may not use the clipboard; there the selected lines are copied as by a key.
for (const button of document.querySelectorAll(".lines button")) {
  button.hidden = false;
  button.onclick = () => {
    getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
  };
}
