/* SPDX-License-Identifier: MIT */
/*
 * Per-thread cache of stacks: a program that launches in a loop has the same stack again and again.
 *
 * A walk is determined by its initial registers and by the words of the stack that it reads: return addresses and saved
 * frame pointers. If a thread has the same registers and all those words are unchanged, its stack is the same and
 * nothing else needs to be checked. The words are read in one pass and compared. Of the registers, ip, sp and bp are
 * compared; a walk that depended on another one is not cached. If a return probe has put its trap on the stack, the
 * real return address is read from the kernel again.
 *
 * A thread that launches from several places in turn has several memos. The one to try is selected by a few words in
 * which its stacks differed; their positions are learnt from failed comparisons.
 *
 * A memo has room for the words of about 250 frames. Deeper stacks are not cached here: the words go to the thread, which
 * recognises such a stack itself.
 */
#ifndef WARPSCOPE_MEMO_H
#define WARPSCOPE_MEMO_H

#include "returns.h"

#define MEMOS 8
#define MEMO_TELLTALES 4
/* The most return probes on a stack: nested watched calls have one each. */
#define MEMO_RETURNS 4
/* Words of the stack compared here, from sp up: 32 KiB. A thread's cache is limited to 64 KiB. */
#define WINDOW 4096
/* Words that the thread itself compares: cuBLAS has frames of more than 32 KiB. */
#define REACH 65536

struct memo {
	u64 sp; /* 0: empty */
	u64 ip;
	u64 bp;
	u64 owner;
	u64 id;
	u32 count;
	u32 span; /* words from sp to the last recorded one */
	u64 returns;
	u64 slot[MEMO_RETURNS];
	u64 real[MEMO_RETURNS];
	u64 value[MEMO_WORDS];
	u16 place[MEMO_WORDS];
};

struct walk_cache {
	u32 span; /* words from sp to the last telltale */
	u16 telltales;
	u16 telltale[MEMO_TELLTALES];
	u32 last; /* the memo that was used last */
	u32 deep; /* a walk read more words than a memo has room for */
	struct memo memos[MEMOS];
	/* The current stack, from `sp` up; `fresh` is the number of words. */
	u64 sp;
	u64 fresh;
	u64 window[WINDOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct walk_cache);
} walk_caches SEC(".maps");

/* The words of the walk in progress. Only threads with deep stacks have this. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct deep_memo_record);
} deep_memos SEC(".maps");

_Static_assert(sizeof(struct walk_cache) < 65000, "what a task storage may hold");

/* Reads the stack's first words. 0 on success. */
static __always_inline int read_window(struct walk_cache *cache, u64 words)
{
	if (words > WINDOW || bpf_probe_read_user(cache->window, 8 * words, (void *)cache->sp))
		return 1;
	cache->fresh = words;
	return 0;
}

static __always_inline bool begins_so(const struct memo *memo, const struct registers *regs, u64 owner)
{
	return memo->sp == regs->general[REGISTER_RSP] && memo->ip == regs->ip && memo->bp == regs->general[REGISTER_RBP] &&
	       memo->owner == owner;
}

/*
 * Reads the stack and finds the memo that may match it. Returns the memo's index, which is the one to overwrite if it
 * does not match. *id is the id of the stack if it matches, otherwise 0.
 *
 * A stack has two possible slots. Otherwise two alternating calls, such as nested ones, would evict each other's memo
 * if they shared a slot.
 *
 * A separate function: otherwise the verifier explores every path through it together with every walk.
 */
__noinline int recall_stack(struct walk_cache *cache, const struct registers *regs, u64 owner, u64 *id)
{
	struct memo *memo;
	u64 hash = 0, sp;
	u32 index;

	if (!cache || !regs || !id)
		return 0;
	sp = regs->general[REGISTER_RSP];
	*id = 0;
	cache->sp = sp;
	cache->fresh = 0;
	/* A shallower stack cannot be read that far: it has zeros there. */
	if (cache->span)
		read_window(cache, cache->span);
	for (u32 i = 0; i < MEMO_TELLTALES; i++) {
		u16 place = cache->telltale[i];

		if (i >= cache->telltales || place >= WINDOW)
			break;
		hash = mix(hash, cache->window[place]);
	}
	index = mix(hash, sp) & (MEMOS - 1);
	if (!begins_so(&cache->memos[index], regs, owner) &&
	    (index == cache->last || begins_so(&cache->memos[index ^ 1], regs, owner)))
		index ^= 1;
	cache->last = index;
	memo = &cache->memos[index];
	if (!begins_so(memo, regs, owner))
		return index;
	if (memo->span > cache->fresh && read_window(cache, memo->span))
		return index;
	for (u32 i = 0; i < MEMO_WORDS; i++) {
		u16 place;

		if (i >= memo->count)
			break;
		place = memo->place[i];
		if (place >= WINDOW)
			return index;
		if (cache->window[place] != memo->value[i]) {
			u16 known = cache->telltales;

			if (known < MEMO_TELLTALES) {
				cache->telltale[known] = place;
				cache->telltales = known + 1;
				/* If little is missing, read all of it at once. */
				if (place >= cache->span)
					cache->span = memo->span - place < 512 ? memo->span : place + 1;
			}
			return index;
		}
	}
	for (u32 i = 0; i < MEMO_RETURNS; i++) {
		if (i >= memo->returns)
			break;
		if (real_return(memo->slot[i]) != memo->real[i])
			return index;
	}
	*id = memo->id;
	return index;
}

/* Starts recording the words of a walk. */
static __always_inline void begin_memo(struct memo *memo, const struct registers *regs, u64 owner)
{
	memo->sp = 0;
	memo->ip = regs->ip;
	memo->bp = regs->general[REGISTER_RBP];
	memo->owner = owner;
	memo->count = 0;
	memo->returns = 0;
}

/* Values of `count` of a memo that is not valid: the walk read too many words, or something that cannot be compared. */
#define MEMO_FULL (MEMO_WORDS + 1)
#define MEMO_SPOILT (MEMO_WORDS + 2)

/* The walk read something that cannot be compared later: discard the memo. */
static __always_inline void spoil_memo(struct memo *memo, struct deep_memo_record *deep)
{
	memo->count = MEMO_SPOILT;
	if (deep)
		deep->count = DEEP_WORDS + 1;
}

/* Records a word that the walk has read. `deep` may be null. */
static __always_inline void note_word(struct memo *memo, struct deep_memo_record *deep, u64 sp, u32 *span, u64 address,
				      u64 word)
{
	u64 place = (address - sp) >> 3;
	u64 count;

	if (place >= REACH || (address - sp) & 7) {
		spoil_memo(memo, deep);
		return;
	}
	if (place >= *span)
		*span = place + 1;
	if (deep) {
		count = deep->count;
		if (count < DEEP_WORDS) {
			deep->word[count].value = word;
			deep->word[count].place = place;
		}
		if (count <= DEEP_WORDS)
			deep->count = count + 1;
	}
	count = memo->count;
	if (count < MEMO_WORDS) {
		memo->place[count] = place;
		memo->value[count] = word;
	}
	if (count <= MEMO_WORDS)
		memo->count = count + 1;
}

/* Records a return address that is not on the stack. */
static __always_inline void note_return(struct memo *memo, struct deep_memo_record *deep, u64 slot, u64 real)
{
	u64 count = memo->returns;

	if (count >= MEMO_RETURNS) {
		spoil_memo(memo, deep);
		return;
	}
	memo->slot[count] = slot;
	memo->real[count] = real;
	memo->returns = count + 1;
}

/* Memos already sent to the reader; evicted ones are sent again, as are those whose mappings have changed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u8);
} memos_sent SEC(".maps");

static __always_inline u64 memo_key(const struct memo *memo, u64 id, u64 sp, u64 session)
{
	return mix(mix(mix(mix(id, sp), memo->bp), memo->owner), session);
}

/* Sends the memo of a finished walk to the reader, so that the thread itself can recognise the stack. */
static __always_inline void send_memo(const struct memo *memo, u32 image, u64 session)
{
	u64 key = memo_key(memo, memo->id, memo->sp, session);
	struct memo_record *record;
	u8 one = 1;

	if (!memo->sp || memo->returns || memo->count > MEMO_WORDS || bpf_map_lookup_elem(&memos_sent, &key))
		return;
	record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
	if (!record)
		return;
	record->type = RECORD_MEMO;
	record->image = image;
	record->session = session;
	record->stack = memo->id;
	record->sp = memo->sp;
	record->bp = memo->bp;
	record->count = memo->count;
	bpf_probe_read_kernel(record->value, sizeof(record->value), memo->value);
	bpf_probe_read_kernel(record->place, sizeof(record->place), memo->place);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&memos_sent, &key, &one, BPF_ANY);
}

/* The same for a walk that read more words than the memo has room for. */
static __always_inline void send_deep(struct deep_memo_record *deep, const struct memo *memo, u32 image, u64 session,
				      u64 id, u64 sp)
{
	u64 key = memo_key(memo, id, sp, session);
	u64 count = deep->count;
	u8 one = 1;

	if (memo->returns || count > DEEP_WORDS || bpf_map_lookup_elem(&memos_sent, &key))
		return;
	deep->type = RECORD_DEEP_MEMO;
	deep->image = image;
	deep->session = session;
	deep->stack = id;
	deep->sp = sp;
	deep->bp = memo->bp;
	if (!bpf_ringbuf_output(&events, deep, DEEP_MEMO_HEADER + sizeof(struct deep_word) * count, BPF_RB_NO_WAKEUP))
		bpf_map_update_elem(&memos_sent, &key, &one, BPF_ANY);
}

/*
 * The walk is finished: the memo is valid from now on, if all its words fitted. One that extends beyond the window is
 * used only by the thread itself.
 */
static __always_inline void end_memo(struct memo *memo, u64 sp, u32 span, u64 id)
{
	if (memo->count > MEMO_WORDS)
		return;
	memo->span = span;
	memo->id = id;
	memo->sp = sp;
}

#endif
