-- Model configurations by id and revision. The config is kept as text: key order and every digit stay as given.
create table models (
    id                  text collate "C" not null,
    revision            text collate "C" not null,
    config              text not null check (config::json is not null),
    quantization_config text check (quantization_config is null or quantization_config::json is not null),
    source              text not null,
    hash                text not null,
    updated_at          timestamptz not null,
    primary key (id, revision)
);

-- Answers by the hash of their content: the JSON as it was sent, deflated (RFC 1951).
create table plans (
    plan_id    text primary key,
    answer     bytea not null,
    created_at timestamptz not null
);

create index plans_by_age on plans (created_at);
