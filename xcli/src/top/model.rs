//! The state of the view, and what keys and lists change in it. Reads no clock and does no I/O.

use super::columns::{Column, SORTED, Users};
use super::orders::{self, Order, Remembered};
use super::rows::{QueueRow, Row, RowId, only_held, rows};
use crate::endpoint::Endpoint;
use crate::explain;
use crate::list;
use crate::table::plain;
use protocol::control::{Client, List, Request};
use protocol::ids::{ClientId, Pid, QueueId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most shares of each program that are kept for its sparkline.
const HISTORY: usize = 240;
/// The rows that the keys for pages go.
const PAGE: usize = 10;
/// The most characters that are typed into a line.
const TYPED: usize = 200;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Character(char),
}

/// What the loop has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// End.
    Quit,
    /// Send the requests of an order.
    Order(Order),
}

/// What the keys mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    Browse,
    /// The help, from this line on.
    Help(usize),
    /// The text of the filter is typed.
    Filter,
    /// A priority for this line is typed.
    Priority(RowId, String),
    /// A policy with its parameters is typed.
    Policy(String),
    /// A person is asked whether to switch scheduling off.
    Off,
}

/// A line about the last order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub is_error: bool,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    Client(&'a Row),
    Queue(&'a QueueRow),
    /// A process that `xcli suspend` has suspended and that is no client, with its name.
    Held(Pid, String),
}

/// The state of the view.
#[derive(Debug)]
pub struct Model {
    endpoint: Endpoint,
    pub users: Users,
    /// The last list; none before the first one and after the loss of the server.
    list: Option<List>,
    /// The reason why the server does not answer.
    pub lost: Option<String>,
    pub sort: Column,
    pub is_reversed: bool,
    pub filter: String,
    pub mode: Mode,
    pub message: Option<Message>,
    /// In the order of the table.
    rows: Vec<Row>,
    shares: BTreeMap<ClientId, VecDeque<Option<f64>>>,
    expanded: BTreeSet<ClientId>,
    selected: Option<RowId>,
    /// The place of the selected line, for the case that it disappears.
    place: usize,
    remembered: Remembered,
}

impl Model {
    /// A view of a server that was not asked yet.
    pub fn new(endpoint: Endpoint, users: Users) -> Self {
        Self {
            endpoint,
            users,
            list: None,
            lost: None,
            sort: SORTED[0],
            is_reversed: false,
            filter: String::new(),
            mode: Mode::Browse,
            message: None,
            rows: Vec::new(),
            shares: BTreeMap::new(),
            expanded: BTreeSet::new(),
            selected: None,
            place: 0,
            remembered: Remembered::new(),
        }
    }

    /// Takes a new list.
    pub fn update(&mut self, list: List) {
        self.rows = rows(self.list.as_ref(), &list);
        if self.list.as_ref().is_none_or(|before| before.server.pid != list.server.pid) {
            self.shares.clear();
            self.expanded.clear();
            self.remembered.clear();
        }
        self.lost = None;
        let known: BTreeSet<ClientId> = self.rows.iter().map(|row| row.client).collect();
        self.shares.retain(|client, _| known.contains(client));
        self.expanded.retain(|client| known.contains(client));
        self.remembered.retain(|(client, _), _| known.contains(client));
        for row in &self.rows {
            let shares = self.shares.entry(row.client).or_default();
            shares.push_back(row.rates.share_percent);
            if shares.len() > HISTORY {
                shares.pop_front();
            }
        }
        self.list = Some(list);
        self.arrange();
        if self.selected.is_some() {
            // If it is gone, the selection follows what is in its place now.
            self.select_again();
        }
    }

    /// Notes that the server does not answer, for this reason. What it said last holds no longer.
    pub fn lose(&mut self, why: String) {
        self.lost = Some(plain(&why));
        self.list = None;
        self.rows.clear();
    }

    /// Notes the result of an order.
    pub fn note(&mut self, result: Result<String, String>) {
        let is_error = result.is_err();
        let (Ok(text) | Err(text)) = result;
        self.message = Some(Message { text: plain(&text), is_error });
    }

    /// The line about the server, once it has answered.
    pub fn server(&self) -> Option<String> {
        self.list.as_ref().map(|list| list::server(&list.server))
    }

    /// Returns true if the list has users, which those of a server for all users have.
    pub fn has_users(&self) -> bool {
        self.rows.iter().any(|row| row.uid.is_some())
    }

    /// Returns true if there may be programs that are not shown.
    pub fn is_partial(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.partial)
    }

    /// The lines of the table, each with its name.
    pub fn lines(&self) -> Vec<(RowId, Line<'_>)> {
        let mut lines = Vec::new();
        for row in self.rows.iter().filter(|row| self.matches(row)) {
            lines.push((RowId::Client(row.client), Line::Client(row)));
            if self.expanded.contains(&row.client) {
                let queue = |queue: &QueueRow| RowId::Queue(row.client, queue.queue);
                lines.extend(row.queues.iter().map(|one| (queue(one), Line::Queue(one))));
            }
        }
        for held in self.list.iter().flat_map(only_held) {
            let name = plain(&held.name);
            if self.is_wanted(&[&held.pid.to_string(), &name, "stopped"]) {
                lines.push((RowId::Held(held.pid), Line::Held(held.pid, name)));
            }
        }
        lines
    }

    /// The place of the selected line among the lines, if there are any.
    pub fn selected(&self) -> Option<usize> {
        let lines = self.lines();
        let place = lines.iter().position(|(id, _)| Some(id) == self.selected.as_ref());
        place.or_else(|| lines.len().checked_sub(1).map(|last| self.place.min(last)))
    }

    /// The shares of the selected program, the oldest first, in percent.
    pub fn shares(&self) -> Vec<Option<f64>> {
        let client = self.chosen().map(|(client, _)| client.client);
        client.and_then(|client| self.shares.get(&client)).into_iter().flatten().copied().collect()
    }

    /// The program of the selected line: its process and name.
    pub fn title(&self) -> Option<String> {
        match self.selected_line()? {
            (RowId::Held(pid), Line::Held(_, name)) => Some(format!("{pid} {name}")),
            _ => self.chosen().map(|(client, _)| name(client)),
        }
    }

    /// Explains the selected line, as `xcli explain` does.
    pub fn why(&self) -> Vec<String> {
        let command = |words: &str| plain(&self.endpoint.command(words));
        let (Some(list), Some((id, _))) = (&self.list, self.selected_line()) else { return Vec::new() };
        match (id, self.chosen()) {
            (RowId::Held(pid), _) => {
                vec![format!("suspended by `xcli suspend` until `{}`", command(&format!("resume {pid}")))]
            }
            (_, Some((client, queue))) => {
                let mut lines = explain::lines(list, client, queue, command);
                lines.extend(list::preemption(client));
                lines
            }
            (_, None) => Vec::new(),
        }
    }

    fn selected_line(&self) -> Option<(RowId, Line<'_>)> {
        self.lines().into_iter().nth(self.selected()?)
    }

    /// The client of the selected line, and the queue if it is one.
    fn chosen(&self) -> Option<(&Client, Option<QueueId>)> {
        let (id, queue) = match self.selected_line()?.0 {
            RowId::Client(client) => (client, None),
            RowId::Queue(client, queue) => (client, Some(queue)),
            RowId::Held(_) => return None,
        };
        let client = self.list.as_ref()?.clients.iter().find(|client| client.client == id)?;
        Some((client, queue))
    }

    fn matches(&self, row: &Row) -> bool {
        let user = Column::User.cell(row, &self.users);
        self.is_wanted(&[&row.pid.to_string(), &row.name, &user, row.state.word()])
    }

    /// Returns true if one of the texts contains the filter.
    fn is_wanted(&self, texts: &[&str]) -> bool {
        let filter = self.filter.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&filter))
    }

    fn arrange(&mut self) {
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        // Those that are equal stay in the order in which they connected.
        self.rows
            .sort_by(|one, other| sort.compare(one, other, is_reversed).then(one.client.cmp(&other.client)));
    }

    fn select(&mut self, place: usize) {
        let id = self.lines().get(place).map(|(id, _)| id.clone());
        (self.selected, self.place) = (id, place);
    }

    fn select_again(&mut self) {
        if let Some(place) = self.selected() {
            self.select(place);
        }
    }

    fn step(&mut self, by: isize) {
        let last = self.lines().len().saturating_sub(1);
        let place = self.selected().unwrap_or(0).saturating_add_signed(by).min(last);
        self.select(place);
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Option<Action> {
        if self.selected.is_none() {
            // Before the first key, the first line is selected, whichever that is.
            self.select_again();
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => {
                self.message = None;
                return self.browse(key);
            }
            Mode::Help(line) => match key {
                Key::Up => self.mode = Mode::Help(line.saturating_sub(1)),
                Key::Down => self.mode = Mode::Help(line + 1),
                Key::PageUp => self.mode = Mode::Help(line.saturating_sub(PAGE)),
                Key::PageDown => self.mode = Mode::Help(line + PAGE),
                Key::Character('q') => return Some(Action::Quit),
                _ => {}
            },
            Mode::Filter => match key {
                Key::Escape => self.filter.clear(),
                Key::Enter => {}
                Key::Up | Key::Down => {
                    self.mode = Mode::Filter;
                    self.step(if key == Key::Up { -1 } else { 1 });
                }
                _ => {
                    edit(&mut self.filter, key);
                    self.mode = Mode::Filter;
                }
            },
            Mode::Priority(of, mut text) => match key {
                Key::Escape => {}
                Key::Enter => return self.set_priority(&of, &text),
                _ => {
                    edit(&mut text, key);
                    self.mode = Mode::Priority(of, text);
                }
            },
            Mode::Policy(mut text) => match key {
                Key::Escape => {}
                Key::Enter => return self.order(orders::set_policy(&text)),
                Key::Up | Key::Down => {
                    self.mode = Mode::Policy(orders::next_policy(&text, key == Key::Down).to_owned());
                }
                _ => {
                    edit(&mut text, key);
                    self.mode = Mode::Policy(text);
                }
            },
            Mode::Off => match key {
                Key::Character('y' | 'Y') => {
                    let done = "off: every program runs unscheduled; o switches scheduling on".to_owned();
                    return self.order(Ok(Order { requests: vec![Request::Off], done }));
                }
                _ => self.note(Ok("scheduling stays on".to_owned())),
            },
        }
        None
    }

    fn browse(&mut self, key: Key) -> Option<Action> {
        match key {
            Key::Up | Key::Character('k') => self.step(-1),
            Key::Down | Key::Character('j') => self.step(1),
            Key::PageUp => self.step(-PAGE.cast_signed()),
            Key::PageDown => self.step(PAGE.cast_signed()),
            Key::Home => self.step(isize::MIN),
            Key::End => self.step(isize::MAX),
            Key::Enter => self.toggle_queues(),
            Key::Escape => self.filter.clear(),
            Key::Backspace => {}
            Key::Character(letter) => return self.letter(letter),
        }
        None
    }

    fn letter(&mut self, letter: char) -> Option<Action> {
        match letter {
            'q' | 'Q' => return Some(Action::Quit),
            '?' | 'h' => self.mode = Mode::Help(0),
            '/' => self.mode = Mode::Filter,
            's' => {
                let place = SORTED.iter().position(|column| *column == self.sort).unwrap_or(0);
                self.sort = SORTED[(place + 1) % SORTED.len()];
                self.arrange();
            }
            'r' => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            '+' | '=' => return self.step_priority(1),
            '-' => return self.step_priority(-1),
            'p' if self.chosen().is_some() => {
                let of = self.selected_line().map(|(id, _)| id);
                self.mode = of.map_or(Mode::Browse, |id| Mode::Priority(id, String::new()));
            }
            'z' => return self.suspend(),
            'Z' => return self.resume(),
            'P' => self.mode = Mode::Policy(String::new()),
            'o' => match self.list.as_ref().map(|list| list.server.on) {
                Some(true) => self.mode = Mode::Off,
                Some(false) => {
                    let done = "on: the policy decides".to_owned();
                    return self.order(Ok(Order { requests: vec![Request::On], done }));
                }
                None => {}
            },
            _ => {}
        }
        None
    }

    /// Shows the queues of the selected program, or no longer.
    fn toggle_queues(&mut self) {
        let Some((client, _)) = self.chosen() else { return };
        let id = client.client;
        if !self.expanded.remove(&id) {
            self.expanded.insert(id);
            return;
        }
        // The selected queue is gone.
        let place = self.lines().iter().position(|(line, _)| *line == RowId::Client(id));
        self.select(place.unwrap_or(0));
    }

    fn order(&mut self, order: Result<Order, String>) -> Option<Action> {
        match order {
            Ok(order) => Some(Action::Order(order)),
            Err(why) => {
                self.note(Err(why));
                None
            }
        }
    }

    fn step_priority(&mut self, by: i64) -> Option<Action> {
        let (client, queue) = self.chosen()?;
        let order = orders::step_priority(client, &name(client), queue, by);
        self.order(order)
    }

    fn set_priority(&mut self, of: &RowId, text: &str) -> Option<Action> {
        if self.selected_line().is_none_or(|(id, _)| id != *of) {
            return self.order(Err("the program or its queue has ended".to_owned()));
        }
        let (client, queue) = self.chosen()?;
        let set = |priority| orders::set_priority(client, &name(client), queue, priority);
        let order = orders::priority(text).map(set);
        self.order(order)
    }

    fn suspend(&mut self) -> Option<Action> {
        let mut remembered = std::mem::take(&mut self.remembered);
        let order = match (self.selected_line().map(|(id, _)| id), self.chosen()) {
            (_, Some((client, _))) => Some(orders::suspend(client, &name(client), &mut remembered)),
            (Some(RowId::Held(pid)), None) => Some(Err(format!("{pid} is suspended already; Z resumes it"))),
            _ => None,
        };
        self.remembered = remembered;
        self.order(order?)
    }

    fn resume(&mut self) -> Option<Action> {
        let list = self.list.as_ref()?;
        let order = match (self.selected_line().map(|(id, _)| id), self.chosen()) {
            (_, Some((client, _))) => orders::resume(list, client, &name(client), &self.remembered),
            (Some(RowId::Held(pid)), None) => Ok(orders::resume_held(pid)),
            _ => return None,
        };
        self.order(order)
    }
}

/// A client for people.
fn name(client: &Client) -> String {
    format!("{} {}", client.pid, plain(&client.name))
}

/// Changes a typed text.
fn edit(text: &mut String, key: Key) {
    match key {
        Key::Character(letter) if text.len() < TYPED => text.push(letter),
        Key::Backspace => drop(text.pop()),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
