//! Draws the view into a buffer of the terminal's size. Pure.

use super::columns::{ALL, Column, fitting};
use super::model::{Line, Message, Mode, Model};
use super::rows::State;
use crate::table::wrapped;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// The keys, each with its meaning.
const KEYS: &[(&str, &str)] = &[
    ("up down k j", "select; also PgUp, PgDn, Home, End"),
    ("Enter", "show the queues of the program"),
    ("s, r", "sort by the next column; reverse the order"),
    ("/", "filter by pid, name, user or state; Escape clears"),
    ("+ - p", "priority one higher, one lower, typed"),
    ("z, Z", "suspend the program (priority -256); resume it"),
    ("P", "policy: NAME [PARAMETER=NUMBER]...; up and down choose"),
    ("o", "scheduling off or on, for all programs"),
    ("Ctrl-L, Ctrl-Z", "draw again; stop until `fg`"),
    ("q", "end"),
];

/// The line of keys at the bottom.
const FOOT: &str =
    "q end  ? help  Enter queues  s sort  / filter  +-p priority  zZ suspend, resume  P policy  o off";

/// The eight heights of a sparkline.
const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_BARS: [&str; 8] = ["_", ".", ":", "-", "=", "+", "*", "#"];

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    pub colors: bool,
    /// False if only ASCII is sure to be shown.
    pub unicode: bool,
}

impl Theme {
    fn color(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    fn error(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn state(self, state: State) -> Style {
        match state {
            State::Running => self.color(Color::Green),
            State::Suspended => self.color(Color::Yellow),
            State::Stopped => self.color(Color::Red),
            State::Idle => Style::new(),
        }
    }

    /// The last characters of a text that was cut.
    fn dots(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub fn draw(model: &Model, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut canvas = Canvas { buffer, theme };
    let body = area.height.saturating_sub(2);
    canvas.head(model, Rect { height: 1, ..area });
    if let Mode::Help(first) = model.mode {
        canvas.help(first, Rect { y: 1, height: body, ..area });
    } else {
        let details = match body {
            ..6 => 0,
            6..12 => 3,
            12..30 => 6,
            _ => 10,
        };
        canvas.table(model, Rect { y: 1, height: body - details, ..area });
        canvas.details(model, Rect { y: 1 + body - details, height: details, ..area });
    }
    if area.height > 1 {
        canvas.foot(model, Rect { y: area.height - 1, height: 1, ..area });
    }
}

struct Canvas<'a> {
    buffer: &'a mut Buffer,
    theme: Theme,
}

impl Canvas<'_> {
    /// Writes a text into a line, and marks that it was cut.
    fn text(&mut self, line: Rect, text: &str, style: Style) {
        if line.width == 0 || line.height == 0 {
            return;
        }
        let width = usize::from(line.width);
        self.buffer.set_stringn(line.x, line.y, text, width, style);
        if ratatui::text::Span::raw(text).width() > width {
            self.buffer.set_string(line.x + line.width - 1, line.y, self.theme.dots(), style);
        }
    }

    fn head(&mut self, model: &Model, line: Rect) {
        match (&model.lost, model.server()) {
            (Some(_), _) => self.text(line, "no answer from the server; xcli asks again", self.theme.error()),
            (None, Some(server)) => self.text(line, &server, BOLD),
            (None, None) => self.text(line, "asking the server", BOLD),
        }
    }

    fn table(&mut self, model: &Model, area: Rect) {
        if area.height == 0 {
            return;
        }
        let (columns, theme) = (fitting(area.width, model.has_users()), self.theme);
        let row = |index: usize| Rect { y: area.y + u16::try_from(index).unwrap_or(0), height: 1, ..area };
        self.buffer.set_style(row(0), REVERSED);
        let descends = model.sort.begins_with_greatest() != model.is_reversed;
        self.cells(row(0), &columns, |column, _| {
            let mark = match (model.sort == column, descends, theme.unicode) {
                (false, ..) => "",
                (true, true, true) => "▼",
                (true, false, true) => "▲",
                (true, true, false) => "v",
                (true, false, false) => "^",
            };
            (format!("{}{mark}", column.title()), Style::new())
        });
        let lines = model.lines();
        let height = usize::from(area.height - 1);
        if lines.is_empty() {
            let body = Rect { y: area.y + 1, height: area.height - 1, ..area };
            return self.paragraph(body, &[nothing(model)], Style::new());
        }
        let selected = model.selected().unwrap_or(0);
        let first = (selected + 1).saturating_sub(height);
        for (index, (_, line)) in lines.iter().enumerate().skip(first).take(height) {
            let place = row(1 + index - first);
            let is_selected = index == selected;
            self.cells(place, &columns, |column, width| {
                cell(model, line, (column, width), theme, is_selected)
            });
            if is_selected {
                self.buffer.set_style(place, REVERSED);
            }
        }
    }

    /// Writes the cells of a line.
    fn cells(
        &mut self,
        line: Rect,
        columns: &[(Column, u16)],
        cell: impl Fn(Column, u16) -> (String, Style),
    ) {
        let mut x = line.x;
        for &(column, width) in columns {
            let (text, style) = cell(column, width);
            let width = width.min((line.x + line.width).saturating_sub(x));
            let used = u16::try_from(ratatui::text::Span::raw(text.as_str()).width()).unwrap_or(u16::MAX);
            let indent = if column.is_number() { width.saturating_sub(used) } else { 0 };
            self.text(Rect { x: x + indent, width: width - indent, ..line }, &text, style);
            x += width + 1;
        }
    }

    /// Explains the selected line.
    fn details(&mut self, model: &Model, area: Rect) {
        let Some(title) = model.title().filter(|_| area.height > 0) else { return };
        let bar = if self.theme.unicode { "─" } else { "-" };
        let width = usize::from(area.width);
        let first = Rect { height: 1, ..area };
        self.text(first, &format!("{bar}{bar} {title} {}", bar.repeat(width)), BOLD);
        // The text would end with the mark of a cut.
        self.buffer.set_string(area.x + area.width - 1, area.y, bar, BOLD);
        let mut rest = Rect { y: area.y + 1, height: area.height - 1, ..area };
        if rest.height > 2 {
            self.sparkline(model, Rect { height: 1, ..rest });
            rest = Rect { y: rest.y + 1, height: rest.height - 1, ..rest };
        }
        self.paragraph(rest, &model.why(), Style::new());
    }

    /// Draws the shares of the selected program, the newest at the right end.
    fn sparkline(&mut self, model: &Model, line: Rect) {
        let shares = model.shares();
        let last = shares.last().copied().flatten();
        let now = last.map_or("unknown".to_owned(), |share| format!("{share:.1} %"));
        let (label, now) = ("share ", format!("{now:>9}"));
        let most = shares.iter().flatten().copied().fold(100.0, f64::max);
        let room = usize::from(line.width).saturating_sub(label.len() + now.len());
        let shown = &shares[shares.len().saturating_sub(room)..];
        let bars = if self.theme.unicode { BARS } else { ASCII_BARS };
        let bar = |share: &Option<f64>| match share {
            None => " ",
            // The conversion saturates.
            Some(share) => bars[((share / most * BARS.len() as f64) as usize).min(BARS.len() - 1)],
        };
        let bars: String = shown.iter().map(bar).collect();
        self.text(line, &format!("{label}{}{bars}{now}", " ".repeat(room - shown.len())), Style::new());
    }

    /// Writes lines, wrapped at spaces, as far as there is room.
    fn paragraph(&mut self, area: Rect, lines: &[String], style: Style) {
        let width = Some(usize::from(area.width));
        let wrapped: Vec<String> = lines.iter().map(|line| wrapped(line, width)).collect();
        let all: Vec<&str> = wrapped.iter().flat_map(|lines| lines.lines()).collect();
        for (index, text) in (0..area.height).zip(&all) {
            let line = Rect { y: area.y + index, height: 1, ..area };
            self.text(line, text, style);
            if index + 1 == area.height && all.len() > usize::from(area.height) {
                let end = u16::try_from(text.chars().count()).unwrap_or(u16::MAX).min(area.width - 1);
                self.buffer.set_string(area.x + end, line.y, self.theme.dots(), style);
            }
        }
    }

    fn foot(&mut self, model: &Model, line: Rect) {
        let cursor = |label: &str, text: &str| format!("{label}: {text}_");
        let (text, style) = match (&model.mode, &model.message) {
            (Mode::Filter, _) => (cursor("filter", &model.filter), BOLD),
            (Mode::Priority(_, text), _) => (cursor("priority from -255 to 255", text), BOLD),
            (Mode::Policy(text), _) => (cursor("policy", text), BOLD),
            (Mode::Off, _) => ("let every program run unscheduled? y/n".to_owned(), BOLD),
            (Mode::Help(_), _) => ("up and down scroll; any other key closes the help".to_owned(), REVERSED),
            (Mode::Browse, Some(Message { text, is_error: true })) => (text.clone(), self.theme.error()),
            (Mode::Browse, Some(Message { text, .. })) => (text.clone(), BOLD),
            (Mode::Browse, None) if !model.filter.is_empty() => {
                (format!("filter: {}; Escape clears it", model.filter), Style::new())
            }
            (Mode::Browse, None) => (FOOT.to_owned(), REVERSED),
        };
        if style == REVERSED {
            self.buffer.set_style(line, REVERSED);
        }
        self.text(line, &text, style);
    }

    fn help(&mut self, first: usize, area: Rect) {
        let keys = KEYS.iter().map(|(keys, meaning)| format!("{keys:<16} {meaning}"));
        let columns = ALL.iter().map(|column| format!("{:<16} {}", column.title(), column.meaning()));
        let text: Vec<String> = keys.chain([String::new()]).chain(columns).collect();
        let hanging = |line: &String| -> Vec<String> {
            let width = Some(usize::from(area.width).saturating_sub(17));
            let (head, rest) = line.split_at(line.len().min(17));
            let rest = wrapped(rest, width);
            let mut lines = rest.lines();
            let first = format!("{head}{}", lines.next().unwrap_or_default());
            std::iter::once(first).chain(lines.map(|line| format!("{:17}{line}", ""))).collect()
        };
        let lines: Vec<String> = text.iter().flat_map(hanging).collect();
        let last = lines.len().saturating_sub(usize::from(area.height));
        for (index, text) in (0..area.height).zip(&lines[first.min(last)..]) {
            self.text(Rect { y: area.y + index, height: 1, ..area }, text, Style::new());
        }
    }
}

/// The text of a table without lines.
fn nothing(model: &Model) -> String {
    match (&model.lost, model.server()) {
        (Some(why), _) => why.clone(),
        (None, None) => String::new(),
        (None, Some(_)) if !model.filter.is_empty() => "no program matches the filter".to_owned(),
        (None, Some(_)) if model.is_partial() => {
            "none of your programs is connected; programs of other users are not shown".to_owned()
        }
        (None, Some(_)) => "no program is connected".to_owned(),
    }
}

fn cell(
    model: &Model,
    line: &Line<'_>,
    (column, width): (Column, u16),
    theme: Theme,
    is_selected: bool,
) -> (String, Style) {
    let (text, state) = match line {
        Line::Client(row) => (column.cell(row, &model.users), row.state),
        Line::Queue(row) => (column.cell_of_queue(row, width), row.state),
        Line::Held(pid, name) => {
            let text = match column {
                Column::Pid => pid.to_string(),
                Column::Name => name.clone(),
                Column::State => State::Stopped.word().to_owned(),
                Column::Why => "suspended by `xcli suspend`".to_owned(),
                _ => String::new(),
            };
            (text, State::Stopped)
        }
    };
    let colored = column == Column::State && !is_selected;
    (text, if colored { theme.state(state) } else { Style::new() })
}

#[cfg(test)]
mod tests;
