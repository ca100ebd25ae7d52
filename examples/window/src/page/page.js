'use strict';
// what follows the # of the link: it is never sent but with a switch
const token = location.hash.slice(1);
const state = document.getElementById('state'), lamps = document.getElementById('lamps');

function lamp(number) {
  const button = document.createElement('button');
  button.textContent = String(number + 1);
  button.setAttribute('aria-pressed', 'false');
  button.setAttribute('aria-label', `lamp ${number + 1}`);
  button.disabled = token === '';
  // shown as on once the program says that it is
  button.onclick = async () => {
    const on = button.getAttribute('aria-pressed') !== 'true';
    const answer = await fetch(`/switch?lamp=${number}&on=${on}`, {method: 'POST', headers: {'X-Token': token}});
    if (!answer.ok) state.textContent = await answer.text();
  };
  return button;
}

const events = new EventSource('/events');
events.onmessage = event => {
  const said = JSON.parse(event.data);
  while (lamps.children.length < said.lamps.length) lamps.append(lamp(lamps.children.length));
  said.lamps.forEach((on, number) => lamps.children[number].setAttribute('aria-pressed', String(on)));
  state.textContent = token === ''
    ? `${said.changes} changes; to switch, open the link that the program shows`
    : `${said.changes} changes`;
};
events.onerror = () => { state.textContent = 'the program does not answer'; };
