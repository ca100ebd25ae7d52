//! The pages of the server: the page, the state as it changes, and switches.

use crate::access::PanelAccess;
use crate::guard::{PageGuard, PageRefusal};
use forebay::{HandlerResult, Request, Response, Server, ServerBuilder};
use std::io::Write;
use std::sync::Arc;

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// Only the program's own files are loaded, and no other page may frame this one: a click meant for that
/// page would land here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A server whose handlers reach the state in this way.
pub fn lamps<A: PanelAccess>(access: &A, guard: PageGuard) -> ServerBuilder {
    let guard = Arc::new(guard);
    let (shown, watched, switched) = (access.clone(), access.clone(), access.clone());
    let file = |media_type: &'static str, text: &'static str| {
        reads(&guard, move |_, response| Ok(response.send(200, media_type, text)?))
    };
    Server::builder()
        .handler("=/", file("text/html; charset=utf-8", PAGE))
        .handler("=/page.js", file("text/javascript; charset=utf-8", SCRIPT))
        .handler("=/page.css", file("text/css; charset=utf-8", STYLE))
        .handler(
            "=/lamps",
            reads(&guard, move |_, response| {
                let state = shown.with(|panel| panel.to_json())?;
                Ok(response.send(200, "application/json", state)?)
            }),
        )
        .handler("=/events", reads(&guard, move |_, response| events(&watched, response)))
        .handler(
            "=/switch",
            writes(&guard, move |request, response| switch(&switched, request, response)),
        )
}

/// Sends the state, and sends it again with each change, until the client leaves: then a wait ends with
/// an error.
fn events<A: PanelAccess>(access: &A, response: &mut Response) -> HandlerResult {
    response.field("Content-Type", "text/event-stream")?;
    let watcher = access.with(|panel| panel.watch())?;
    loop {
        let state = access.with(|panel| panel.to_json())?;
        write!(response, "data: {state}\n\n")?;
        response.flush()?;
        watcher.recv()?;
    }
}

fn switch<A: PanelAccess>(
    access: &A,
    request: &mut Request,
    response: &mut Response,
) -> HandlerResult {
    let lamp = request.parameter("lamp").and_then(|lamp| lamp.parse::<usize>().ok());
    let on = request.parameter("on").and_then(|on| on.parse::<bool>().ok());
    let (Some(lamp), Some(on)) = (lamp, on) else {
        return Ok(response.send(400, "text/plain", "lamp is a number, on is true or false\n")?);
    };
    match access.with(move |panel| panel.switch(lamp, on))? {
        Some(on) => Ok(response.text(if on { "on\n" } else { "off\n" })?),
        None => Ok(response.send(404, "text/plain", "there is no such lamp\n")?),
    }
}

/// A handler for requests that may read.
fn reads<F>(
    guard: &Arc<PageGuard>,
    handler: F,
) -> impl Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + use<F>
where
    F: Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + 'static,
{
    let guard = Arc::clone(guard);
    guarded(&["GET", "HEAD"], move |request| guard.read(request.host()), handler)
}

/// A handler for requests that may write.
fn writes<F>(
    guard: &Arc<PageGuard>,
    handler: F,
) -> impl Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + use<F>
where
    F: Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + 'static,
{
    let guard = Arc::clone(guard);
    let may = move |request: &Request| {
        guard.write(request.host(), request.field("Origin"), request.field("X-Token"))
    };
    guarded(&["POST"], may, handler)
}

fn guarded(
    methods: &'static [&'static str],
    may: impl Fn(&Request) -> Result<(), PageRefusal> + Send + Sync + 'static,
    handler: impl Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + 'static,
) -> impl Fn(&mut Request, &mut Response) -> HandlerResult + Send + Sync + 'static {
    move |request, response| {
        response
            .field("Cache-Control", "no-store")?
            .field("Content-Security-Policy", POLICY)?
            .field("X-Content-Type-Options", "nosniff")?
            .field("Cross-Origin-Resource-Policy", "same-origin")?
            .field("Referrer-Policy", "no-referrer")?;
        if let Err(refusal) = may(request) {
            return Ok(response.send(refusal.status(), "text/plain", refusal.to_string())?);
        }
        if !methods.contains(&request.method()) {
            response.field("Allow", methods.join(", "))?;
            return Ok(response.send(405, "text/plain", "not by this method\n")?);
        }
        handler(request, response)
    }
}
