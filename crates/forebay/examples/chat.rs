//! A chat with history: each visitor sees what was written before, and then what others write, as they
//! write it.
//! `cargo run --example chat -p forebay`, then two windows of a browser.

use forebay::{Sender, Server, ServerBuilder, channel};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Lines that are kept for visitors who come later.
const HISTORY: usize = 100;

/// Lines that wait for one reader; a reader that is further behind misses some.
const BEHIND: usize = 64;

const PAGE: &str = "<!doctype html><meta charset=utf-8><title>Chat</title>
<ol id=lines></ol>
<form id=form><input id=line autofocus maxlength=500><button>Say</button></form>
<script>
const lines = document.getElementById('lines'), line = document.getElementById('line');
new EventSource('/events').onmessage = event => {
  const item = document.createElement('li');
  item.textContent = event.data;
  lines.append(item);
};
document.getElementById('form').onsubmit = event => {
  event.preventDefault();
  fetch('/say', {method: 'POST', body: line.value});
  line.value = '';
};
</script>
";

/// The lines so far, and the readers that wait for more.
#[derive(Default)]
struct Room {
    history: Vec<Arc<str>>,
    listeners: Vec<Sender<Arc<str>>>,
}

/// A server with the chat.
pub(crate) fn chat() -> ServerBuilder {
    let room = Arc::<Mutex<Room>>::default();
    let heard = Arc::clone(&room);
    Server::builder()
        .handler("=/", |_, response| Ok(response.html(PAGE)?))
        .handler("=/events", move |_, response| {
            response
                .field("Content-Type", "text/event-stream")?
                .field("Cache-Control", "no-store")?;
            let (sender, receiver) = channel(BEHIND);
            let history = {
                // the lock is held no longer than this: a lock keeps a loop of fibers waiting
                let mut room = heard.lock().unwrap_or_else(PoisonError::into_inner);
                room.listeners.push(sender);
                room.history.clone()
            };
            for line in history {
                write!(response, "data: {line}\n\n")?;
            }
            response.flush()?;
            // until the client leaves: then the wait ends with an error
            loop {
                let line = receiver.recv()?;
                write!(response, "data: {line}\n\n")?;
                response.flush()?;
            }
        })
        .handler("=/say", move |request, response| {
            let line = request.body(500)?;
            let line: Arc<str> = String::from_utf8_lossy(&line).replace(['\r', '\n'], " ").into();
            let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
            room.history.push(Arc::clone(&line));
            let more = room.history.len().saturating_sub(HISTORY);
            room.history.drain(..more);
            // a reader that has left is removed
            room.listeners.retain(|listener| {
                listener.try_send(Arc::clone(&line)) != Err(forebay::ChannelError::Closed)
            });
            response.status(204)?;
            Ok(())
        })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = chat().listen("127.0.0.1:8080").start()?;
    println!("{}", server.urls()[0]);
    Ok(server.wait()?)
}
