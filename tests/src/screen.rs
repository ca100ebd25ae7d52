//! A virtual screen of X11 (Xvfb) for programs with windows: its picture, and a mouse.

use crate::faults::site::Folder;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SIZE: &str = "640x480x24";

/// A running screen. It ends when this is dropped.
pub struct Screen {
    process: Child,
    display: String,
    folder: Folder,
}

/// The picture on a screen.
pub struct ScreenPicture {
    /// The number of pixels in a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// Red, green and blue of each pixel, row by row.
    pub pixels: Vec<[u8; 3]>,
}

impl Screen {
    /// Starts a screen.
    ///
    /// # Errors
    /// There is no Xvfb.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start() -> Result<Screen, String> {
        let folder = Folder::new();
        let mut process = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", SIZE, "-nolisten", "tcp", "-fbdir"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("Xvfb: {error}, see scripts/install"))?;
        let mut number = String::new();
        let said = process.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb has ended");
        Ok(Screen { process, display: format!(":{}", number.trim()), folder })
    }

    /// Has a program show its windows on the screen, drawn by the processor alone.
    pub fn show(&self, command: &mut Command) {
        command.env("DISPLAY", &self.display).env_remove("WAYLAND_DISPLAY");
        command.env("GDK_BACKEND", "x11").env("GSK_RENDERER", "cairo");
        // no services of a desktop
        command.env("GTK_A11Y", "none").env("GSETTINGS_BACKEND", "memory");
        command.env("HOME", self.folder.path()).env_remove("DBUS_SESSION_BUS_ADDRESS");
    }

    /// The picture that is on the screen now.
    ///
    /// # Panics
    /// If the file of the screen is not in X11's format (XWD).
    pub fn picture(&self) -> ScreenPicture {
        let file = std::fs::read(self.folder.join("Xvfb_screen0")).unwrap();
        let number = |at: usize| {
            let bytes: [u8; 4] = file[4 * at..4 * at + 4].try_into().unwrap();
            u32::from_be_bytes(bytes) as usize
        };
        let [head, width, height, row, colors] = [0, 4, 5, 12, 19].map(number);
        assert_eq!((number(1), number(11)), (7, 32), "version of XWD, bits of a pixel");
        // a pixel is blue, green, red and a byte of nothing, or the other way round
        let is_least_first = number(7) == 0;
        let from = head + 12 * colors;
        let pixels = (0..height).flat_map(|y| {
            let row = &file[from + y * row..][..4 * width];
            row.chunks_exact(4).map(|pixel| match is_least_first {
                true => [pixel[2], pixel[1], pixel[0]],
                false => [pixel[1], pixel[2], pixel[3]],
            })
        });
        ScreenPicture { width, height, pixels: pixels.collect() }
    }

    /// Clicks at a place.
    ///
    /// # Errors
    /// There is no xdotool.
    pub fn click(&self, (x, y): (usize, usize)) -> Result<(), String> {
        let words = ["mousemove", &x.to_string(), &y.to_string(), "click", "1"].map(str::to_owned);
        let status = Command::new("xdotool").args(words).env("DISPLAY", &self.display).status();
        let status = status.map_err(|error| format!("xdotool: {error}, see scripts/install"))?;
        if status.success() { Ok(()) } else { Err(format!("xdotool: {status}")) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ScreenPicture {
    /// The places of the pixels of a colour.
    pub fn places(&self, color: [u8; 3]) -> Vec<(usize, usize)> {
        let at = |(at, _)| (at % self.width, at / self.width);
        self.pixels.iter().enumerate().filter(|(_, pixel)| **pixel == color).map(at).collect()
    }

    /// The picture as a file (PPM), for a person to look at.
    pub fn to_ppm(&self) -> Vec<u8> {
        let head = format!("P6\n{} {}\n255\n", self.width, self.height).into_bytes();
        [head, self.pixels.concat()].concat()
    }
}
