//! The thread that asks the server, so that a server that does not answer never delays a key.

use super::orders::Order;
use crate::ask::{Cause, Failure, Session};
use crate::endpoint::Endpoint;
use crate::suspend;
use crate::table::plain;
use protocol::control::{List, Reply, Request};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An answer of the server, or none.
#[derive(Debug)]
pub enum Answer {
    List(Box<List>),
    /// The server does not answer, for this reason. It is asked again.
    Lost(String),
    /// An order was carried out, or it was not, for this reason.
    Done(Result<String, String>),
}

/// Starts the thread. It asks for a list at each interval, and after each order. It ends when the returned end is dropped
/// or `take` returns false.
///
/// # Errors
/// No thread is left.
pub fn start(
    endpoint: &Endpoint,
    interval: Duration,
    take: impl Fn(Answer) -> bool + Send + 'static,
) -> std::io::Result<Sender<Order>> {
    let (sender, orders) = channel();
    let session = Session::new(endpoint);
    thread::Builder::new().name("asks".to_owned()).spawn(move || serve(session, interval, &orders, &take))?;
    Ok(sender)
}

fn serve(mut session: Session, interval: Duration, orders: &Receiver<Order>, take: &impl Fn(Answer) -> bool) {
    loop {
        let next = Instant::now() + interval;
        let list = match session.list() {
            Ok(list) => Answer::List(Box::new(list)),
            Err(error) => Answer::Lost(format!("{error:#}")),
        };
        if !take(list) {
            return;
        }
        match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(order) => {
                if !take(Answer::Done(carry_out(&mut session, order))) {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sends the requests, until one is refused.
fn carry_out(session: &mut Session, order: Order) -> Result<String, String> {
    for request in &order.requests {
        let reply = match request {
            Request::Release { .. } => session.ask_within(request, suspend::LIMIT),
            _ => session.ask(request),
        };
        match reply {
            Ok(Reply::Fates(fates)) => {
                if let Some(fault) = suspend::faults(suspend::Order::Resume, &fates).first() {
                    return Err(fault.clone());
                }
            }
            Ok(_) => {}
            Err(Failure { cause: Cause::Refused(why), .. }) => {
                return Err(format!("refused: {}", plain(&why)));
            }
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Ok(order.done)
}
