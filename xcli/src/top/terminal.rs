//! The terminal, and the loop of the view: keys, answers and signals come in, frames go out.
//!
//! The terminal is restored on every end: by the guard [`Screen`], by a panic hook because panics abort, and on the
//! signals that end a program, which a thread waits for.

use super::columns;
use super::model::{Action, Key, Model};
use super::poller::{self, Answer};
use super::view::{self, Theme};
use crate::endpoint::Endpoint;
use anyhow::Context as _;
use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute, queue};
use ratatui::layout::Rect;
use std::io::{self, BufWriter, Stdout};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// The most events that wait while a slow terminal takes a frame.
const EVENTS: usize = 64;
/// The bytes of output that are written at once, so that a frame does not flicker.
const FRAME: usize = 64 * 1024;
/// The signals that the loop handles.
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT];

/// True while the terminal shows the view.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
enum Event {
    Key(Key),
    /// Draw everything again: the size has changed, or something else has written to the terminal.
    Redraw,
    /// Stop the process until SIGCONT.
    Stop,
    /// End, by this signal if there is one.
    End(Option<libc::c_int>),
    /// Keys cannot be read.
    Broken(io::Error),
    Answer(Answer),
}

/// What the loop does next.
enum Next {
    Draw,
    Redraw,
    Stop,
    End(Option<libc::c_int>),
}

/// The terminal while it shows the view. Not a `ratatui::Terminal`, which asks the terminal for its cursor when the size
/// changes: the thread that reads keys would take the answer.
struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    /// What it shows.
    shown: Buffer,
}

impl Screen {
    fn new() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        enter().inspect_err(|_| leave())?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME, io::stdout()));
        Ok(Self { backend, shown: Buffer::default() })
    }

    /// Draws what has changed.
    fn draw(&mut self, model: &Model, theme: Theme) -> io::Result<()> {
        let (width, height) = size()?;
        let area = Rect::new(0, 0, width, height);
        if self.shown.area != area {
            self.clear()?;
            self.shown = Buffer::empty(area);
        }
        let mut next = Buffer::empty(area);
        view::draw(model, theme, &mut next);
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        self.shown = next;
        io::Write::flush(&mut self.backend)
    }

    /// Clears the terminal, so that everything is drawn again.
    fn clear(&mut self) -> io::Result<()> {
        self.shown.reset();
        queue!(self.backend, Clear(ClearType::All))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    IS_ENTERED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Restores the terminal, once.
fn leave() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        // There is nothing to do about a terminal that is gone.
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Shows the view until a person or a signal ends it, or after `count` lists.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(endpoint: &Endpoint, interval: Duration, count: Option<u64>, theme: Theme) -> anyhow::Result<()> {
    // Before any thread starts, which inherits it.
    set_blocked(true);
    let users = columns::users(&std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let mut model = Model::new(endpoint.clone(), users);
    let (sender, events) = sync_channel(EVENTS);
    let mut screen = Screen::new().context("the terminal cannot show the view; --plain prints tables")?;
    spawn("signals", &sender, wait_for_signals)?;
    spawn("keys", &sender, read_keys)?;
    let orders = poller::start(endpoint, interval, move |answer| sender.send(Event::Answer(answer)).is_ok())?;
    let mut left = count;
    loop {
        screen.draw(&model, theme).context("cannot write to the terminal")?;
        // Whatever has come while a slow terminal took the frame is in the next one.
        let first = events.recv().context("nothing can happen any more")?;
        for event in std::iter::once(first).chain(events.try_iter()) {
            let next = match event {
                Event::Key(key) => match model.key(key) {
                    Some(Action::Quit) => Next::End(None),
                    Some(Action::Order(order)) => {
                        // The thread lasts as long as this end of its channel.
                        let _ = orders.send(order);
                        Next::Draw
                    }
                    None => Next::Draw,
                },
                Event::Redraw => Next::Redraw,
                Event::Stop => Next::Stop,
                Event::End(signal) => Next::End(signal),
                Event::Broken(error) => return Err(error).context("cannot read keys from the terminal"),
                Event::Answer(answer) => take(&mut model, answer, &mut left),
            };
            match next {
                Next::Draw => {}
                Next::Redraw => screen.clear()?,
                Next::Stop => {
                    leave();
                    // SAFETY: raises a signal in this process, which stops until SIGCONT.
                    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
                    enter().context("the terminal cannot show the view again")?;
                    screen.clear()?;
                }
                Next::End(signal) => {
                    drop(screen);
                    signal.inspect(|signal| end_by(*signal));
                    return Ok(());
                }
            }
        }
    }
}

fn take(model: &mut Model, answer: Answer, left: &mut Option<u64>) -> Next {
    match answer {
        Answer::List(list) => {
            model.update(*list);
            if let Some(left) = left {
                *left -= 1;
                if *left == 0 {
                    return Next::End(None);
                }
            }
        }
        Answer::Lost(why) => model.lose(why),
        Answer::Done(result) => model.note(result),
    }
    Next::Draw
}

fn spawn(name: &str, to: &SyncSender<Event>, work: fn(&SyncSender<Event>)) -> io::Result<()> {
    let to = to.clone();
    thread::Builder::new().name(name.to_owned()).spawn(move || work(&to)).map(drop)
}

/// Reads keys until the loop has ended.
fn read_keys(to: &SyncSender<Event>) {
    loop {
        let event = match event::read() {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => key_event(key),
            Ok(Input::Resize(..)) => Some(Event::Redraw),
            Ok(_) => None,
            Err(error) => {
                // The loop may have ended.
                let _ = to.send(Event::Broken(error));
                return;
            }
        };
        if event.is_some_and(|event| to.send(event).is_err()) {
            return;
        }
    }
}

fn key_event(key: KeyEvent) -> Option<Event> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if is_control => return Some(Event::End(None)),
        KeyCode::Char('z') if is_control => return Some(Event::Stop),
        KeyCode::Char('l') if is_control => return Some(Event::Redraw),
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(letter) => Key::Character(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    };
    Some(Event::Key(key))
}

fn wait_for_signals(to: &SyncSender<Event>) {
    let set = signals();
    loop {
        let mut signal = 0;
        // SAFETY: the set is initialized, and the signals in it are blocked in all threads.
        if unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {
            return;
        }
        let event = match signal {
            libc::SIGTSTP => Event::Stop,
            libc::SIGCONT => Event::Redraw,
            signal => Event::End(Some(signal)),
        };
        if to.send(event).is_err() {
            return;
        }
    }
}

fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set, and all numbers are signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals of the loop in this thread, or no longer.
fn set_blocked(blocked: bool) {
    let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let set = signals();
    // SAFETY: the set is initialized, and the old one is not wanted.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Ends the process by a signal, as its parent expects it.
fn end_by(signal: libc::c_int) {
    // SAFETY: SIG_DFL runs no code.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    set_blocked(false);
    // SAFETY: raises a signal in this thread.
    unsafe { libc::raise(signal) };
}
