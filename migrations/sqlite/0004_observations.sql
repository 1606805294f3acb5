-- What engines printed at start-up beside what was predicted: recovered settings and figures, never the log itself.
-- An empty text says that the log (or the question) does not tell; `record` is the whole answer as JSON.
create table observations (
    id                  text primary key not null,
    engine              text not null,
    version             text not null,
    gpu                 text not null,
    model               text not null,
    layout              text not null,
    outcome             text not null,
    outcome_agrees      boolean,
    kv_tokens_observed  real,
    kv_tokens_predicted real,
    ratios              text not null check (json_valid(ratios)),
    record              text not null check (json_valid(record)),
    observed_at         datetime not null
);

create index observations_by_age on observations (observed_at, id);
