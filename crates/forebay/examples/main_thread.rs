//! The main thread owns the state; handlers send closures to it, and wait for what they return.
//! `cargo run --example main_thread -p forebay`

use forebay::{MainHandle, MainThread, Server, ServerBuilder};
use std::cell::RefCell;
use std::rc::Rc;

/// The state, of a kind that no other thread may touch.
#[derive(Default)]
struct Model {
    lamps: Rc<RefCell<Vec<bool>>>,
}

thread_local!(static MODEL: Model = Model { lamps: Rc::new(RefCell::new(vec![false; 8])) });

/// A server whose handlers reach the main thread by this handle.
pub(crate) fn lamps(main: &MainHandle) -> ServerBuilder {
    let (show, switch) = (main.clone(), main.clone());
    Server::builder()
        .handler("=/", move |_, response| {
            let text = show.call(|| {
                let text = |lamps: &Vec<bool>| {
                    lamps.iter().map(|on| if *on { '*' } else { '.' }).collect::<String>()
                };
                MODEL.with(|model| text(&model.lamps.borrow()))
            })?;
            Ok(response.text(text)?)
        })
        .handler("=/switch", move |request, response| {
            // any page that a browser shows could ask for this
            if request.field("X-Own-Page").is_none() {
                return Ok(response.send(403, "text/plain", "from another page")?);
            }
            let lamp: usize = request.parameter("lamp").unwrap_or_default().parse()?;
            let is_on = switch.call(move || {
                MODEL.with(|model| {
                    let mut lamps = model.lamps.borrow_mut();
                    let lamp = lamps.get_mut(lamp)?;
                    *lamp = !*lamp;
                    Some(*lamp)
                })
            })?;
            match is_on {
                Some(is_on) => Ok(response.text(if is_on { "on" } else { "off" })?),
                None => Ok(response.send(404, "text/plain", "no such lamp")?),
            }
        })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (main, handle) = MainThread::new()?;
    let server = lamps(&handle).listen("127.0.0.1:8080").start()?;
    println!("{}", server.urls()[0]);
    drop(handle);
    // the handlers have handles, as long as there is a server
    Ok(main.serve()?)
}
