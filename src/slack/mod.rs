//! The Slack face: slash commands, mentions and buttons in; messages out. It never computes.
//!
//! A request is taken when its [`signature`] holds; its text goes to the same parser as `/v1/questions`; the answer is
//! [`draw`]n within Block Kit's limits. Slack waits three seconds: what is not ready by then is [`post`]ed later.

mod answers;
pub mod blocks;
mod draw;
mod incoming;
mod link;
pub mod post;
mod said;
mod seen;
pub mod signature;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub use answers::{Answers, Asked, Later};
use blocks::{Audience, Message, safe};
use draw::{Frame, NEXT, OPEN, told};
use incoming::{Command, Event, Mention, Press};
use post::{Outlet, PostError, ResponseUrl};
use said::Said;
use seen::Seen;
use signature::{Unsigned, Verifier};

use crate::service::ServiceError;

/// Slack waits three seconds; half of one is for the way.
pub const BUDGET: Duration = Duration::from_millis(2500);
/// Bytes of a request. A pressed button comes with the whole message that it stands in.
pub const MOST_BYTES: usize = 256 << 10;
/// Questions in work at once.
const ROOM: usize = 16;
/// Events that are remembered, and for how long: Slack repeats one at once, after a minute and after five.
const MOST_EVENTS: usize = 16_384;
const EVENTS_FOR_S: u64 = 3600;

/// What time it is, in Unix seconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the face is made of.
pub struct Parts {
    pub verifier: Verifier,
    pub outlet: Outlet,
    pub answers: Arc<dyn Answers>,
    pub clock: Clock,
    /// How long Slack is let wait.
    pub budget: Duration,
    /// Address of the dashboard for links.
    pub dashboard: Option<String>,
}

/// The face of one app of Slack.
pub struct Slack {
    parts: Parts,
    events: Mutex<Seen<String>>,
    room: Arc<Semaphore>,
}

/// A request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// When it arrived here.
    pub arrived: Instant,
    /// Header `X-Slack-Request-Timestamp`.
    pub timestamp: Option<&'a str>,
    /// Header `X-Slack-Signature`.
    pub signature: Option<&'a str>,
    /// True with the header `X-Slack-Retry-Num`.
    pub is_retry: bool,
    pub body: &'a [u8],
}

/// What Slack is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Received; there is nothing to show.
    Received,
    /// The challenge of an address that is being set up.
    Challenge(String),
    Message(Box<Message>),
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
    #[error("{0}")]
    Malformed(String),
    #[error(transparent)]
    Elsewhere(#[from] PostError),
}

/// Where a late answer goes.
enum Place {
    At(ResponseUrl),
    Under { channel: String, thread: String },
}

impl Slack {
    /// A face of these parts.
    #[must_use]
    pub fn of(parts: Parts) -> Arc<Self> {
        let events = Mutex::new(Seen::of(MOST_EVENTS));
        Arc::new(Self { parts, events, room: Arc::new(Semaphore::new(ROOM)) })
    }

    fn verify(&self, signed: &Signed<'_>) -> Result<(), Unsigned> {
        let now = (self.parts.clock)();
        self.parts.verifier.verify(signed.timestamp, signed.signature, signed.body, now)
    }

    /// A slash command. The answer comes within the budget: where it is not ready, a word that it will come.
    ///
    /// # Errors
    /// [`Refused`] for a request that is not Slack's, or that wants its answer elsewhere.
    pub async fn command(self: &Arc<Self>, signed: Signed<'_>) -> Result<Reply, Refused> {
        self.verify(&signed)?;
        let command = Command::read(signed.body);
        if command.ssl_check {
            return Ok(Reply::Received);
        }
        let place = Place::At(self.parts.outlet.response_url(&command.response_url)?);
        let frame = self.frame(command.command);
        let work = Arc::clone(self).reply_to(Said::of(&command.text), command.team_id, frame);
        let Some(mut task) = self.start(work) else { return Ok(message(busy())) };
        let left = self.parts.budget.saturating_sub(signed.arrived.elapsed());
        match tokio::time::timeout(left, &mut task).await {
            Ok(done) => Ok(message(done.unwrap_or_else(|_| broken()))),
            Err(_) => {
                self.send_later(task, place);
                Ok(message(told("Still counting; the answer follows here.")))
            }
        }
    }

    /// An event. A mention is answered in its thread, once, however often Slack sends it.
    ///
    /// # Errors
    /// [`Refused`] for a request that is not Slack's or not an event.
    pub fn event(self: &Arc<Self>, signed: Signed<'_>) -> Result<Reply, Refused> {
        match self.verify(&signed) {
            // the very same request again, announced as such: it was answered
            Err(Unsigned::Replayed) if signed.is_retry => return Ok(Reply::Received),
            verified => verified?,
        }
        match Event::read(signed.body).map_err(Refused::Malformed)? {
            Event::Verification(challenge) => Ok(Reply::Challenge(challenge.chars().take(1000).collect())),
            Event::Other => Ok(Reply::Received),
            Event::Mention(mention) => {
                self.mentioned(mention);
                Ok(Reply::Received)
            }
        }
    }

    fn mentioned(self: &Arc<Self>, mention: Mention) {
        let now = (self.parts.clock)();
        let is_first = self.events.lock().unwrap_or_else(PoisonError::into_inner).is_first(
            &mention.event_id,
            now.saturating_add(EVENTS_FOR_S),
            now,
        );
        if !is_first {
            return;
        }
        if !self.parts.outlet.has_token() {
            tracing::warn!(
                "the bot was mentioned, and slack.bot_token is not set: it cannot answer in a channel"
            );
            return;
        }
        let frame = self.frame("/shardwise".to_owned());
        let work = Arc::clone(self).reply_to(Said::of(&mention.text), mention.team_id, frame);
        let place = Place::Under { channel: mention.channel, thread: mention.thread };
        match self.start(work) {
            Some(task) => self.send_later(task, place),
            None => self.send(busy(), place),
        }
    }

    /// A pressed button. Slack is told at once that it was received; the answer is posted.
    ///
    /// # Errors
    /// [`Refused`] for a request that is not Slack's, or that wants its answer elsewhere.
    pub fn interaction(self: &Arc<Self>, signed: Signed<'_>) -> Result<Reply, Refused> {
        self.verify(&signed)?;
        let Some(press) = Press::read(signed.body).map_err(Refused::Malformed)? else {
            return Ok(Reply::Received);
        };
        if press.action == OPEN {
            return Ok(Reply::Received);
        }
        let place = Place::At(self.parts.outlet.response_url(&press.response_url)?);
        match self.start(Arc::clone(self).reply_to_press(press)) {
            Some(task) => self.send_later(task, place),
            None => self.send(busy(), place),
        }
        Ok(Reply::Received)
    }

    async fn reply_to(self: Arc<Self>, said: Said, workspace: String, frame: Frame) -> Message {
        let answers = &self.parts.answers;
        let done = match said {
            Said::Help => Ok(frame.help()),
            Said::ShowUsual => answers.usual(&workspace).await.map(|usual| match usual {
                Some(cluster) => told(&format!("Where no GPUs are named, {} are meant.", safe(&cluster))),
                None => told("No GPUs are set as usual here. Set some: `default 16 H100s`."),
            }),
            Said::SetUsual(cluster) => answers.put_usual(&workspace, &cluster).await.map(|understood| {
                told(&format!("From now on {} are meant where no GPUs are named.", safe(&understood)))
            }),
            Said::ForgetUsual => answers.forget_usual(&workspace).await.map(|was_there| {
                told(if was_there {
                    "Forgotten: no GPUs are usual here now."
                } else {
                    "No GPUs were set as usual here."
                })
            }),
            Said::Question { text, share } => {
                let audience = if share { Audience::InChannel } else { Audience::Ephemeral };
                let answer = answers.answer(Asked::Words { text, workspace }).await;
                answer.map(|answer| frame.answer(audience, &answer))
            }
        };
        done.unwrap_or_else(|error| frame.fault(&error))
    }

    async fn reply_to_press(self: Arc<Self>, press: Press) -> Message {
        let frame = self.frame("/shardwise".to_owned());
        let value = press.value.unwrap_or_default();
        let (Some(kind), Some(request)) = (value.get("kind").and_then(Value::as_str), value.get("request"))
        else {
            return told("This button is of an older version; ask again.");
        };
        let asked = Asked::Typed { kind: kind.to_owned(), request: request.clone() };
        let answer: Result<_, ServiceError> = self.parts.answers.answer(asked).await;
        match (answer, press.action.as_str()) {
            (Err(error), _) => frame.fault(&error),
            (Ok(answer), NEXT) => {
                let from = value.get("from").and_then(Value::as_u64).unwrap_or(1);
                draw::next(&answer, usize::try_from(from).unwrap_or(usize::MAX))
            }
            (Ok(answer), _) => frame.answer(Audience::Ephemeral, &answer),
        }
    }

    fn frame(&self, command: String) -> Frame {
        let command = if command.is_empty() { "/shardwise".to_owned() } else { command };
        Frame { dashboard: self.parts.dashboard.clone(), command }
    }

    /// Work on a thread of its own, so that counting never keeps Slack waiting; nothing when there is no room.
    fn start(&self, work: impl Future<Output = Message> + Send + 'static) -> Option<JoinHandle<Message>> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let runtime = Handle::current();
        Some(tokio::task::spawn_blocking(move || {
            let message = runtime.block_on(work);
            drop(permit);
            message
        }))
    }

    fn send_later(self: &Arc<Self>, task: JoinHandle<Message>, place: Place) {
        let slack = Arc::clone(self);
        tokio::spawn(async move {
            let message = task.await.unwrap_or_else(|_| broken());
            slack.deliver(&message, &place).await;
        });
    }

    fn send(self: &Arc<Self>, message: Message, place: Place) {
        let slack = Arc::clone(self);
        tokio::spawn(async move { slack.deliver(&message, &place).await });
    }

    async fn deliver(&self, message: &Message, place: &Place) {
        let sent = match place {
            Place::At(url) => self.parts.outlet.respond(url, message).await,
            Place::Under { channel, thread } => self.parts.outlet.write(channel, thread, message).await,
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "an answer did not reach Slack");
        }
    }
}

fn message(message: Message) -> Reply {
    Reply::Message(Box::new(message))
}

fn busy() -> Message {
    told("Too many questions are in work; ask again in a moment.")
}

fn broken() -> Message {
    tracing::error!("a question from Slack ended in a panic");
    told("*Something went wrong here.* It was written to the log.")
}
