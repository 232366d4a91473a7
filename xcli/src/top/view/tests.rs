//! Pictures of the view as text files beside this one, and the picture of the README.
//! `GIVEWAY_REGENERATE=1 cargo test -p xcli top::view` writes them anew; look at them before you commit.

use super::*;
use crate::endpoint::Endpoint;
use crate::top::columns::Users;
use crate::top::model::{Key, Mode};
use crate::top::rows::tests::{SECOND, two_lists};
use protocol::bounds::{Priority, Utilization};
use protocol::codes::PreemptLevel;
use protocol::control::{List, Owner, Queue};
use protocol::ids::Pid;
use protocol::outside::Held;
use protocol::status::Activity;
use protocol::time::Time;
use std::fmt::Write as _;
use std::path::Path;

const FULL: Theme = Theme { colors: true, unicode: true };
const ASCII: Theme = Theme { colors: false, unicode: false };

/// Two minutes of the two programs of the example, whose shares go up and down.
fn model() -> Model {
    let mut model = Model::new(Endpoint::default(), Users::new());
    let [_, mut list] = two_lists();
    let shares = [20, 24, 30, 26, 18, 22, 60, 72, 64, 20, 16, 24, 28, 20, 22, 30, 34, 26];
    for second in 0..120_u64 {
        next_second(&mut list, shares[second as usize % shares.len()]);
        model.update(list.clone());
    }
    model
}

/// A second in which the first program has this share of the device in percent, and the other one gets most of the rest.
fn next_second(list: &mut List, share: u64) {
    list.server.now = Time(list.server.now.0 + SECOND);
    list.server.uptime_ms += 1000;
    let of = |percent: u64| percent * SECOND / 100;
    let [infer, train, _] = &mut list.clients[..] else { panic!("{list:?}") };
    let queue = &mut infer.queues[0];
    work(queue, of(share));
    queue.status.counts.direct += 20 * share;
    queue.status.activity = Activity::Ready { since: Time(list.server.now.0 - 900_000) };
    let queue = &mut train.queues[0];
    work(queue, of(95 - share));
    queue.status.counts.deferred += 40 * (95 - share);
    queue.status.counts.suspensions += share / 2;
    queue.status.counts.suspended_ns += of(share + 3);
    queue.status.activity = Activity::Ready { since: Time(list.server.now.0 - 40_000_000) };
    train.waiting = train.waiting.map(|mut waiting| {
        waiting.suspended_ns += of(share + 3);
        waiting
    });
    train.preemption.holds += share / 4;
    train.since = Time(list.server.now.0 - 900_000);
}

fn work(queue: &mut Queue, nanos: u64) {
    queue.times.iter_mut().for_each(|times| times.worked_ns += nanos);
}

fn drawn(model: &Model, theme: Theme, width: u16, height: u16) -> Buffer {
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, theme, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[track_caller]
fn check(path: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(&path, drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == drawn,
        "{} is out of date (GIVEWAY_REGENERATE=1 cargo test -p xcli top::view):\n{drawn}",
        path.display()
    );
}

#[test]
fn view_fits_80_by_24() {
    check("src/top/view/80x24.txt", &text(&drawn(&model(), FULL, 80, 24)));
}

#[test]
fn view_fits_40_by_10_in_ascii() {
    let drawn = text(&drawn(&model(), ASCII, 40, 10));
    assert!(drawn.is_ascii(), "{drawn}");
    check("src/top/view/40x10.txt", &drawn);
}

#[test]
fn large_view_shows_users_queues_reasons_and_evicted_processes() {
    let mut model = model();
    let [_, mut list] = two_lists();
    for (client, (uid, name)) in
        list.clients.iter_mut().zip([(1000, "infer"), (1001, "train"), (1000, "fresh")])
    {
        let (rule, max_priority, cgroup) = (name.to_owned(), Priority::MAX, None);
        client.owner = Some(Owner {
            uid,
            rule,
            max_priority,
            max_share: Utilization::MAX,
            max_level: PreemptLevel::Interrupt,
            cgroup,
        });
    }
    list.clients[2].yielded = true;
    list.held = vec![Held { pid: Pid(999), name: "old".to_owned(), queues: vec![] }];
    model.users = [(1000, "alice".to_owned())].into();
    model.update(list);
    model.key(Key::Down);
    model.key(Key::Enter);
    check("src/top/view/200x50.txt", &text(&drawn(&model, FULL, 200, 50)));
}

#[test]
fn help_fits_80_by_24() {
    let mut model = model();
    model.key(Key::Character('?'));
    check("src/top/view/help.txt", &text(&drawn(&model, FULL, 80, 24)));
    for _ in 0..100 {
        model.key(Key::Down);
    }
    let end = text(&drawn(&model, FULL, 40, 10));
    assert!(end.contains("WHY"), "the end can be reached: {end}");
}

#[test]
fn any_size_can_be_drawn() {
    let mut model = model();
    for mode in [Mode::Browse, Mode::Help(0), Mode::Policy("HPF".to_owned())] {
        model.mode = mode;
        for (width, height) in [(1, 1), (2, 2), (7, 3), (8, 9), (20, 5), (300, 4), (3, 60)] {
            drawn(&model, FULL, width, height);
            drawn(&model, ASCII, width, height);
        }
    }
    draw(&model, FULL, &mut Buffer::empty(Rect::new(0, 0, 0, 0)));
}

#[test]
fn selected_line_is_always_seen() {
    let [_, mut list] = two_lists();
    let one = list.clients[0].clone();
    list.clients = (1..60)
        .map(|pid| protocol::control::Client {
            client: protocol::ids::ClientId(pid),
            name: format!("p{pid}"),
            ..one.clone()
        })
        .collect();
    let mut model = Model::new(Endpoint::default(), Users::new());
    model.update(list);
    for key in [Key::End, Key::PageUp, Key::Home] {
        model.key(key);
        let buffer = drawn(&model, ASCII, 80, 24);
        let title = model.title().unwrap();
        let name = title.split(' ').nth(1).unwrap();
        let is_marked = (2..17).any(|y| {
            let line: String = (0..80).map(|x| buffer[(x, y)].symbol()).collect();
            line.contains(name) && buffer[(0, y)].modifier.contains(Modifier::REVERSED)
        });
        assert!(is_marked, "{}", text(&buffer));
    }
}

#[test]
fn without_colors_there_are_none() {
    let colored = |theme| {
        let buffer = drawn(&model(), theme, 80, 24);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colored(FULL));
    assert!(!colored(Theme { colors: false, ..FULL }));
}

#[test]
fn lost_server_refusals_and_prompts_are_shown() {
    let mut model = model();
    let shown = |model: &Model| text(&drawn(model, FULL, 80, 24));
    model.note(Err("refused: priority 300".to_owned()));
    assert!(shown(&model).ends_with("\nrefused: priority 300\n"));
    model.key(Key::Character('/'));
    model.key(Key::Character('q'));
    assert!(shown(&model).ends_with("\nfilter: q_\n"));
    assert!(shown(&model).contains("no program matches the filter"));
    model.key(Key::Escape);
    model.key(Key::Character('o'));
    assert!(shown(&model).ends_with("\nlet every program run unscheduled? y/n\n"));
    model.key(Key::Escape);
    model.lose("no xserver runs: no process listens on /run/s.sock".to_owned());
    let lost = shown(&model);
    assert!(lost.starts_with("no answer from the server"), "{lost}");
    assert!(lost.contains("no xserver runs: no process listens on /run/s.sock"), "{lost}");
    let [_, mut list] = two_lists();
    list.clients.clear();
    model.update(list.clone());
    assert!(shown(&model).contains("no program is connected"));
    list.partial = true;
    model.update(list);
    assert!(shown(&model).contains("programs of other users are not shown"));
}

#[test]
fn wide_letters_do_not_move_the_columns() {
    let [_, mut list] = two_lists();
    list.clients[1].name = "訓練訓練訓練訓練".to_owned();
    let mut model = Model::new(Endpoint::default(), Users::new());
    model.update(list);
    let buffer = drawn(&model, FULL, 80, 24);
    let start = |y: u16, word: &str| {
        let line: Vec<&str> = (0..80).map(|x| buffer[(x, y)].symbol()).collect();
        (0..80).find(|x| line[*x..].concat().starts_with(word))
    };
    let row = (2..5).find(|y| start(*y, "suspended").is_some()).unwrap();
    assert_eq!(start(row, "suspended"), start(1, "STATE"));
}

/// The picture of the README is this view of the example.
#[test]
fn picture_of_the_readme_is_the_view() {
    check("../docs/top.svg", &svg(&drawn(&model(), FULL, 80, 24)));
}

/// Draws a buffer as SVG. Each cell has its place, so that any fixed-width font will do.
fn svg(buffer: &Buffer) -> String {
    let (width, height) = (f64::from(buffer.area.width) * 8.4 + 16.0, buffer.area.height * 18 + 16);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" width=\"{width:.0}\" height=\"{height}\">\n\
         <!-- Written by GIVEWAY_REGENERATE=1 cargo test -p xcli top::view -->\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1b1f24\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let first = &buffer[(x, y)];
            let like =
                |other: &ratatui::buffer::Cell| (other.fg, other.modifier) == (first.fg, first.modifier);
            let end = (x..buffer.area.width).find(|x| !like(&buffer[(*x, y)])).unwrap_or(buffer.area.width);
            let words: String = (x..end).map(|x| buffer[(x, y)].symbol()).collect();
            run(&mut svg, (x, y, end), &words, first.fg, first.modifier);
            x = end;
        }
    }
    svg + "</g>\n</svg>\n"
}

/// Draws characters of one style.
fn run(svg: &mut String, (x, y, end): (u16, u16, u16), words: &str, color: Color, modifier: Modifier) {
    let left = f64::from(x) * 8.4 + 8.0;
    let wide = f64::from(end - x) * 8.4;
    let is_reversed = modifier.contains(Modifier::REVERSED);
    if is_reversed {
        let top = y * 18 + 8;
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"18\" fill=\"#d0d7de\"/>"
        );
    }
    if words.trim().is_empty() {
        return;
    }
    let fill = match (is_reversed, color) {
        (true, _) => "#1b1f24",
        (_, Color::Green) => "#57d364",
        (_, Color::Yellow) => "#e3b341",
        (_, Color::Red) => "#ff7b72",
        _ => "#d0d7de",
    };
    let weight = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    // Spaces at the ends would be lost.
    let kept = words.trim_end();
    let skipped = kept.chars().count() - kept.trim_start().chars().count();
    let left = left + skipped as f64 * 8.4;
    let wide = kept.trim_start().chars().count() as f64 * 8.4;
    let kept = kept.trim_start().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{left:.1}\" y=\"{}\" fill=\"{fill}\"{weight} textLength=\"{wide:.1}\">{kept}</text>",
        y * 18 + 22
    );
}
