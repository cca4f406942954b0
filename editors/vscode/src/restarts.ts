/** How often a server that ended by itself is started again. */

export const RESTARTS = 4;
export const WITHIN_MS = 180_000;

export class Restarts {
  private ended: number[] = [];

  /** The server has ended: whether it is started once more. */
  allows(now: number): boolean {
    this.ended = [...this.ended.filter((time) => now - time < WITHIN_MS), now];
    return this.ended.length <= RESTARTS;
  }
}
