//! A program with a window: its main thread owns the state and draws it; a page that the same process serves shows and
//! changes it.
//!
//! Code of GTK runs on the main thread alone. A handler sends a closure there, and waits for what it returns
//! (`--state main`); with `--state lock` handlers and window share the state under a lock, and the window looks at it
//! with each picture.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use forebay::{MainThread, Server};
use forebay_window::access::{OnMainThread, PanelAccess, UnderLock};
use forebay_window::guard::PageGuard;
use forebay_window::page::lamps;
use forebay_window::panel::LAMPS;
use gtk4 as gtk;
use gtk4::glib::{self, ControlFlow, IOCondition};
use gtk4::prelude::*;
use std::error::Error;
use std::f64::consts::TAU;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};

/// The width of a lamp in the window, in its units.
const CELL: f64 = 56.0;
const RADIUS: f64 = 20.0;
/// The brightness of a lamp that is off, of 1.
const OFF: f64 = 76.0 / 255.0;
/// The distance of the lamps from the top.
const LAMPS_AT: f64 = 40.0;

/// Lamps in a window and on a page.
#[derive(Parser)]
struct WindowArgs {
    /// The port of 127.0.0.1 where the page is; 0: one that the kernel chooses
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// How connections are served
    #[arg(long, default_value = "fibers")]
    engine: String,
    /// Who has the state
    #[arg(long, value_enum, default_value_t = StateOwner::Main)]
    state: StateOwner,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateOwner {
    /// The main thread; others send closures
    Main,
    /// Everyone, under a lock
    Lock,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = WindowArgs::parse();
    gtk::init()?;
    match args.state {
        StateOwner::Main => {
            let (main, handle) = MainThread::new()?;
            let access = OnMainThread::new(handle);
            let (server, link) = serve(&args, &access)?;
            let window = LampWindow::new(&access, &link);
            // calls are made between the events of the window, which is drawn again after them
            let bell = main.as_fd().as_raw_fd();
            let calls = glib::source::unix_fd_add_local(bell, IOCondition::IN, move |_, _| {
                main.make_calls();
                ControlFlow::Continue
            });
            window.run();
            // the main thread's end goes with this, and calls that still wait end with an error
            calls.remove();
            Ok(server.stop()?)
        }
        StateOwner::Lock => {
            let access = UnderLock::default();
            let (server, link) = serve(&args, &access)?;
            LampWindow::new(&access, &link).run();
            Ok(server.stop()?)
        }
    }
}

/// Starts the server; returns it with the link that opens it.
fn serve<A: PanelAccess>(
    args: &WindowArgs,
    access: &A,
) -> Result<(Server, String), Box<dyn Error>> {
    // bound first: the guard has to know the port
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))?;
    let guard = PageGuard::new(listener.local_addr()?.port())?;
    let link = guard.link();
    let server = lamps(access, guard).engine(&args.engine).listener(listener)?.start()?;
    println!("{link}");
    Ok((server, link))
}

/// The window.
struct LampWindow {
    window: gtk::Window,
    events: glib::MainLoop,
}

impl LampWindow {
    fn new<A: PanelAccess>(access: &A, link: &str) -> LampWindow {
        let area = gtk::DrawingArea::builder()
            .content_width((CELL * LAMPS as f64) as i32)
            .content_height(110)
            .build();
        let shown = access.clone();
        area.set_draw_func(move |_, picture, width, _| {
            let (lamps, frames) = shown.here(|panel| (panel.lamps(), panel.count_frame()));
            // an error of the C library concerns a picture that is lost anyway
            let _ = draw(picture, lamps, frames, f64::from(width));
        });
        // the bar moves: a picture for each frame that the screen shows
        area.add_tick_callback(|area, _| {
            area.queue_draw();
            ControlFlow::Continue
        });
        area.add_controller(switching(access));

        let column = gtk::Box::new(gtk::Orientation::Vertical, 8);
        let text = gtk::Label::builder().label(link).selectable(true).wrap(true).build();
        column.append(&area);
        column.append(&text);
        let window = gtk::Window::builder().title("Lamps").child(&column).build();
        // the link's text must not have the focus, because it would be selected as a whole
        area.set_focusable(true);
        gtk::prelude::GtkWindowExt::set_focus(&window, Some(&area));
        let events = glib::MainLoop::new(None, false);
        let ended = events.clone();
        window.connect_close_request(move |_| {
            ended.quit();
            glib::Propagation::Proceed
        });
        LampWindow { window, events }
    }

    /// Shows the window until it is closed.
    fn run(&self) {
        self.window.present();
        self.events.run();
    }
}

/// A gesture that switches the lamp under a click.
fn switching<A: PanelAccess>(access: &A) -> gtk::GestureClick {
    let click = gtk::GestureClick::new();
    let access = access.clone();
    click.connect_pressed(move |_, _, x, y| {
        let lamp = (x / CELL).floor();
        let (dx, dy) = (x - (lamp + 0.5) * CELL, y - LAMPS_AT);
        if dx.hypot(dy) <= RADIUS && lamp >= 0.0 {
            access.here(|panel| {
                let on = panel.lamps().get(lamp as usize).copied();
                on.and_then(|on| panel.switch(lamp as usize, !on))
            });
        }
    });
    click
}

/// Draws the lamps, and a bar that moves as long as the window is drawn.
fn draw(
    picture: &gtk::cairo::Context,
    lamps: [bool; LAMPS],
    frames: u64,
    width: f64,
) -> Result<(), gtk::cairo::Error> {
    for (number, on) in lamps.into_iter().enumerate() {
        match on {
            true => picture.set_source_rgb(1.0, 196.0 / 255.0, 0.0),
            false => picture.set_source_rgb(OFF, OFF, OFF),
        }
        picture.arc((number as f64 + 0.5) * CELL, LAMPS_AT, RADIUS, 0.0, TAU);
        picture.fill()?;
    }
    picture.set_source_rgb(0.05, 0.35, 0.8);
    picture.rectangle((frames * 2) as f64 % (width + 60.0) - 60.0, 84.0, 60.0, 8.0);
    picture.fill()
}
